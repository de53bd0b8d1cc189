//! What this process has used so far: the most memory at once, and processor time. Where the system does not say it: none.

use serde_json::{Value, json};
use std::time::Duration;

/// Ticks of a second in `/proc/self/stat`: the kernel's interface has 100 on every architecture.
const TICKS: u64 = 100;

/// The most memory that was resident at once, in bytes.
pub fn peak_memory() -> Option<u64> {
    peak_of(&std::fs::read_to_string("/proc/self/status").ok()?)
}

fn peak_of(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1_024)
}

/// Processor time of all threads, in user and kernel mode.
pub fn processor_time() -> Option<Duration> {
    time_of(&std::fs::read_to_string("/proc/self/stat").ok()?)
}

fn time_of(stat: &str) -> Option<Duration> {
    // The name, in parentheses, may hold anything; utime and stime are the 14th and 15th field, the 3rd follows the name.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Duration::from_millis((ticks(11)? + ticks(12)?) * 1_000 / TICKS))
}

/// Processor time of the calling thread alone.
pub fn thread_time() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(Duration::from_nanos(stat.split_whitespace().next()?.parse().ok()?))
}

/// Both of the process, for JSON.
pub fn to_json() -> Value {
    json!({
        "peakMemoryBytes": peak_memory(),
        "processorSeconds": processor_time().map(|time| time.as_secs_f64()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_are_read_as_the_system_writes_them() {
        assert_eq!(peak_of("VmPeak:\t 900 kB\nVmHWM:\t    1234 kB\nVmRSS:\t 1 kB\n"), Some(1_234 * 1_024));
        assert_eq!(peak_of("VmHWM: much\n"), None);
        let stat = "42 (a ) b) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 3 0 100 1000 10";
        assert_eq!(time_of(stat), Some(Duration::from_secs(3)));
        assert_eq!(time_of("nothing"), None);
        if cfg!(target_os = "linux") {
            assert!(peak_memory().is_some_and(|bytes| bytes > 1 << 20));
            assert!(processor_time().is_some());
            assert!(thread_time().is_some_and(|time| !time.is_zero()));
        }
    }
}
