//! Frames of a WebSocket (RFC 6455), as far as a server of short texts needs them: no extensions, no binary messages.
//!
//! Not here: the handshake and what the texts say (`socket.rs`).

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The longest message that is read, in bytes.
pub const MESSAGE_MAX: usize = 128 << 10;

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub enum Message {
    /// A whole text.
    Text(String),
    /// A ping, with what is to be sent back.
    Ping(Vec<u8>),
    /// A pong.
    Pong,
    /// The other side closes.
    Close,
}

/// Why nothing more is read: the number of a close frame (RFC 6455 section 7.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken(pub u16);

const PROTOCOL: Broken = Broken(1002);
const KIND: Broken = Broken(1003);
const TEXT: Broken = Broken(1007);
const SIZE: Broken = Broken(1009);
const GONE: Broken = Broken(1006);

/// Reads the next message; frames of one that is cut up are put together.
///
/// # Errors
/// [`Broken`]: what is wrong with it.
pub async fn read<R: AsyncRead + Unpin>(from: &mut R, partial: &mut Vec<u8>) -> Result<Message, Broken> {
    loop {
        let mut head = [0; 2];
        from.read_exact(&mut head).await.map_err(|_| GONE)?;
        let (last, reserved, code) = (head[0] & 0x80 != 0, head[0] & 0x70, head[0] & 0x0f);
        let (masked, short) = (head[1] & 0x80 != 0, u64::from(head[1] & 0x7f));
        if reserved != 0 || !masked || (code >= 8 && (!last || short > 125)) {
            return Err(PROTOCOL);
        }
        let length = match short {
            126 => u64::from(from.read_u16().await.map_err(|_| GONE)?),
            127 => from.read_u64().await.map_err(|_| GONE)?,
            length => length,
        };
        let length = usize::try_from(length).map_err(|_| SIZE)?;
        if length.saturating_add(partial.len()) > MESSAGE_MAX {
            return Err(SIZE);
        }
        let mut mask = [0; 4];
        from.read_exact(&mut mask).await.map_err(|_| GONE)?;
        let mut data = vec![0; length];
        from.read_exact(&mut data).await.map_err(|_| GONE)?;
        for (byte, key) in data.iter_mut().zip(mask.iter().cycle()) {
            *byte ^= key;
        }
        match code {
            0 if partial.is_empty() => return Err(PROTOCOL),
            1 if !partial.is_empty() => return Err(PROTOCOL),
            0 | 1 => partial.extend_from_slice(&data),
            2 => return Err(KIND),
            8 => return Ok(Message::Close),
            9 => return Ok(Message::Ping(data)),
            10 => return Ok(Message::Pong),
            _ => return Err(PROTOCOL),
        }
        if last && code < 2 {
            return String::from_utf8(std::mem::take(partial)).map(Message::Text).map_err(|_| TEXT);
        }
    }
}

/// A frame to send: text (1), close (8), ping (9) or pong (10).
pub fn frame(code: u8, data: &[u8]) -> Vec<u8> {
    let mut out = vec![0x80 | code];
    match data.len() {
        short @ 0..=125 => out.push(short as u8),
        middle @ 126..=65_535 => {
            out.push(126);
            out.extend_from_slice(&(middle as u16).to_be_bytes());
        }
        long => {
            out.push(127);
            out.extend_from_slice(&(long as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(data);
    out
}

/// Sends a frame.
///
/// # Errors
/// The other side is gone.
pub async fn write<W: AsyncWrite + Unpin>(to: &mut W, code: u8, data: &[u8]) -> std::io::Result<()> {
    to.write_all(&frame(code, data)).await?;
    to.flush().await
}

/// The data of a close frame.
pub fn closing(code: u16, reason: &str) -> Vec<u8> {
    // At most 125 bytes, two of which are the code.
    let reason: String = reason.chars().take(60).collect();
    [&code.to_be_bytes()[..], reason.as_bytes()].concat()
}

/// SHA-1 of a short text: the handshake wants it (RFC 6455 section 4.2.2), nothing else here does.
pub fn sha1(text: &[u8]) -> [u8; 20] {
    let mut state: [u32; 5] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    let mut padded = text.to_vec();
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    padded.extend_from_slice(&(text.len() as u64 * 8).to_be_bytes());
    for block in padded.chunks_exact(64) {
        let mut words = [0_u32; 80];
        for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
            *word = bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
        }
        for at in 16..80 {
            words[at] = (words[at - 3] ^ words[at - 8] ^ words[at - 14] ^ words[at - 16]).rotate_left(1);
        }
        let [mut a, mut b, mut c, mut d, mut e] = state;
        for (at, word) in words.iter().enumerate() {
            let (mix, constant) = match at {
                0..20 => ((b & c) | (!b & d), 0x5a82_7999),
                20..40 => (b ^ c ^ d, 0x6ed9_eba1),
                40..60 => ((b & c) | (b & d) | (c & d), 0x8f1b_bcdc),
                _ => (b ^ c ^ d, 0xca62_c1d6_u32),
            };
            let next =
                a.rotate_left(5).wrapping_add(mix).wrapping_add(e).wrapping_add(constant).wrapping_add(*word);
            (e, d, c, b, a) = (d, c, b.rotate_left(30), a, next);
        }
        for (kept, new) in state.iter_mut().zip([a, b, c, d, e]) {
            *kept = kept.wrapping_add(new);
        }
    }
    let mut out = [0; 20];
    for (bytes, word) in out.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a client sends it.
    fn sent(first: u8, data: &[u8]) -> Vec<u8> {
        let mut out = frame(first & 0x0f, data);
        out[0] = first;
        let head = out.len() - data.len();
        out[1] |= 0x80;
        let mask = [1, 2, 3, 4];
        for (byte, key) in out[head..].iter_mut().zip(mask.iter().cycle()) {
            *byte ^= key;
        }
        out.splice(head..head, mask);
        out
    }

    #[tokio::test]
    async fn texts_come_whole_or_in_pieces_and_what_is_wrong_is_named() {
        let long = "x".repeat(70_000);
        let mut bytes = sent(0x81, b"whole");
        bytes.extend(sent(0x01, b"in "));
        bytes.extend(sent(0x89, b"now?"));
        bytes.extend(sent(0x80, b"pieces"));
        bytes.extend(sent(0x81, long.as_bytes()));
        bytes.extend(sent(0x88, b""));
        let (mut from, mut partial) = (&bytes[..], Vec::new());
        let mut next = async || read(&mut from, &mut partial).await;
        assert_eq!(next().await, Ok(Message::Text("whole".to_owned())));
        assert_eq!(next().await, Ok(Message::Ping(b"now?".to_vec())));
        assert_eq!(next().await, Ok(Message::Text("in pieces".to_owned())));
        assert_eq!(next().await, Ok(Message::Text(long)));
        assert_eq!(next().await, Ok(Message::Close));
        for (bytes, wanted) in [
            (frame(1, b"unmasked"), PROTOCOL),
            (sent(0x82, b"binary"), KIND),
            (sent(0xc1, b"compressed"), PROTOCOL),
            (sent(0x80, b"goes on from nothing"), PROTOCOL),
            (sent(0x81, b"\xff"), TEXT),
            (sent(0x81, &vec![b'x'; MESSAGE_MAX + 1]), SIZE),
            (b"\x81".to_vec(), GONE),
        ] {
            assert_eq!(read(&mut &bytes[..], &mut Vec::new()).await, Err(wanted));
        }
    }

    #[test]
    fn the_digest_is_that_of_the_standard() {
        let hex = |bytes: [u8; 20]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(hex(sha1(b"abc")), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_eq!(hex(sha1(&[b'a'; 200])), hex(sha1("a".repeat(200).as_bytes())));
        assert_eq!(hex(sha1(b"")), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    }
}
