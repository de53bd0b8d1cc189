//! The binary's allocator: mimalloc, counting per thread what is taken and given back, for `weir bench kernel`.
//!
//! It counts what glibc's allocator would take for a request (8 bytes more, in steps of 16, at least 32), so that many
//! small allocations are not made to look cheap. Its cost is one addition to a thread's own cell.

#![allow(
    unsafe_code,
    reason = "an allocator is an unsafe trait; every call goes on to mimalloc's as it came"
)]

use mimalloc::MiMalloc;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;

thread_local! {
    /// Bytes taken less bytes given back by this thread since it began.
    static HELD: Cell<i64> = const { Cell::new(0) };
}

#[global_allocator]
static COUNTING: Counting = Counting;

struct Counting;

/// What glibc's allocator takes for this many bytes.
const fn taken(size: usize) -> i64 {
    let chunk = (size + 8).next_multiple_of(16);
    if chunk < 32 { 32 } else { chunk as i64 }
}

fn add(bytes: i64) {
    // A thread that is ending has no cell any more; nobody reads it either.
    let _ended = HELD.try_with(|held| held.set(held.get() + bytes));
}

// SAFETY: each call is handed to mimalloc unchanged; the counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(taken(layout.size()));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { MiMalloc.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(taken(layout.size()));
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        add(-taken(layout.size()));
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { MiMalloc.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        add(taken(new_size) - taken(layout.size()));
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { MiMalloc.realloc(ptr, layout, new_size) }
    }
}

/// Bytes that this thread has taken and not given back so far (another thread may give them back).
pub fn held() -> i64 {
    HELD.with(Cell::get)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_and_given_back_is_counted() {
        let before = held();
        let bytes = std::hint::black_box(vec![1_u8; 1_000]);
        assert_eq!(held() - before, 1_008);
        let boxed = std::hint::black_box(Box::new(1_u8));
        assert_eq!(held() - before, 1_008 + 32);
        drop((bytes, boxed));
        assert_eq!(held(), before);
    }
}
