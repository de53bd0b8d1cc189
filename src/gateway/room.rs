//! The room that bodies of waiting requests may take together.

use super::problem::Fault;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of bodies that all requests hold together, and how many they may.
#[derive(Debug)]
pub struct Room {
    held: AtomicU64,
    most: u64,
}

impl Room {
    /// For so many bytes.
    pub fn new(most: u64) -> Self {
        Room { held: AtomicU64::new(0), most }
    }
}

/// One request's part of the room, given back with it.
#[derive(Debug)]
pub struct Share {
    room: Arc<Room>,
    bytes: u64,
}

impl Share {
    /// Of nothing yet.
    pub fn of(room: &Arc<Room>) -> Self {
        Share { room: Arc::clone(room), bytes: 0 }
    }

    /// Takes so much of it.
    ///
    /// # Errors
    /// There is not as much left.
    pub fn take(&mut self, bytes: u64) -> Result<(), Fault> {
        let before = self.room.held.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
        if before.saturating_add(bytes) <= self.room.most {
            return Ok(());
        }
        let limit = usize::try_from(self.room.most).unwrap_or(usize::MAX);
        Err(Fault::GatewayFull { what: "bytes of bodies", limit })
    }

    /// Gives all of it back.
    pub fn give_back(&mut self) {
        self.room.held.fetch_sub(std::mem::take(&mut self.bytes), Ordering::Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.give_back();
    }
}
