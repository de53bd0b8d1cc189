//! The numbers of a simulated server, and what they assume.

use weir_kernel::Micros;

/// What a server can do. The default is an 8-billion-parameter model in bf16 on one A100 80 GB.
///
/// The default rests on these assumptions, not on a measurement of a real server:
/// * a step reads the weights once: 16 GB at about 1.6 TB/s = 10 ms;
/// * prefill is compute-bound: 2 x 8e9 FLOP per token at half of 312 TFLOP/s = 100 µs a token (10,000 tokens/s);
/// * a decoded sequence costs 20 µs (sampling, detokenizing), and its attention reads 131 kB of KV per token of
///   context (8 KV heads x 128 x 2 x 2 bytes x 32 layers) = 80 ns;
/// * KV holds what is left of 90 % of the memory: about 52 GB = 400,000 tokens.
///
/// Costs are added, where a real server overlaps some of them; attention within a prefill chunk is not charged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Fixed time of one step, in nanoseconds.
    pub step_base_ns: u64,
    /// Time per prefilled token, in nanoseconds.
    pub prefill_token_ns: u64,
    /// Time per decoded sequence and step, in nanoseconds.
    pub decode_seq_ns: u64,
    /// Time per token of context that a decoding sequence attends to, in nanoseconds.
    pub context_token_ns: u64,
    /// Tokens that one step computes at most (`max-num-batched-tokens`), at least 1.
    pub token_budget: u32,
    /// Sequences that run at once (`max-num-seqs`), at least 1.
    pub max_num_seqs: u32,
    /// KV capacity in blocks of [`Spec::BLOCK`] tokens.
    pub kv_blocks: u32,
    /// Prompt and output together (`max-model-len`); also bounded by the KV capacity.
    pub max_model_len: u32,
    /// From the start until the server is ready.
    pub cold_start: Micros,
    /// Mean time between stalls; zero = none.
    pub stall_every: Micros,
    /// How long a stall holds up the step that it meets.
    pub stall_for: Micros,
}

impl Spec {
    /// Tokens in one KV block.
    pub const BLOCK: u32 = 16;

    /// KV capacity in tokens, rounded down to whole blocks.
    pub const fn kv_tokens(&self) -> u64 {
        self.kv_blocks as u64 * Self::BLOCK as u64
    }

    /// Sets the KV capacity, rounded up to whole blocks, at least one.
    pub fn set_kv_tokens(&mut self, tokens: u64) {
        let blocks = tokens.div_ceil(u64::from(Self::BLOCK)).max(1);
        self.kv_blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
    }

    /// The longest prompt and output together that can be served.
    pub fn longest(&self) -> u32 {
        let kv = u32::try_from(self.kv_tokens()).unwrap_or(u32::MAX);
        self.max_model_len.min(kv)
    }

    /// How long a step takes that prefills, decodes and attends this much.
    pub const fn step_time(&self, prefill_tokens: u64, decode_seqs: u64, context_tokens: u64) -> Micros {
        let ns = self
            .step_base_ns
            .saturating_add(prefill_tokens.saturating_mul(self.prefill_token_ns))
            .saturating_add(decode_seqs.saturating_mul(self.decode_seq_ns))
            .saturating_add(context_tokens.saturating_mul(self.context_token_ns));
        // A step of no time would never let time pass.
        let us = ns.div_ceil(1_000);
        Micros(if us == 0 { 1 } else { us })
    }
}

impl Default for Spec {
    fn default() -> Self {
        Spec {
            step_base_ns: 10_000_000,
            prefill_token_ns: 100_000,
            decode_seq_ns: 20_000,
            context_token_ns: 80,
            token_budget: 2_048,
            max_num_seqs: 256,
            kv_blocks: 25_000,
            max_model_len: 32_768,
            cold_start: Micros::ZERO,
            stall_every: Micros::ZERO,
            stall_for: Micros::ZERO,
        }
    }
}
