//! The binary's allocator: mimalloc, counting per thread what is taken and given back, for `weir bench kernel`.
//!
//! It counts what glibc's allocator would take for a request (8 bytes more, in steps of 16, at least 32), so that many
//! small allocations are not made to look cheap. Its cost is one addition to a thread's own cell.

#![allow(unsafe_code, reason = "an allocator is an unsafe trait; every call goes on to mimalloc")]

use libmimalloc_sys as mi;
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

/// mimalloc aligns every block of 16 bytes or more to 16, and smaller ones to their size. Its calls with an alignment
/// take another, slower way for most sizes above 1 KiB, so they are left to those who need them.
const fn aligned_anyway(layout: Layout) -> bool {
    layout.align() <= 8 || (layout.align() <= 16 && layout.size() >= 16)
}

// SAFETY: each call is handed to mimalloc, which keeps the contract; the counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(taken(layout.size()));
        // SAFETY: any size will do, and the alignment is a power of two.
        unsafe {
            match aligned_anyway(layout) {
                true => mi::mi_malloc(layout.size()).cast(),
                false => mi::mi_malloc_aligned(layout.size(), layout.align()).cast(),
            }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(taken(layout.size()));
        // SAFETY: as for `alloc`.
        unsafe {
            match aligned_anyway(layout) {
                true => mi::mi_zalloc(layout.size()).cast(),
                false => mi::mi_zalloc_aligned(layout.size(), layout.align()).cast(),
            }
        }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        add(-taken(layout.size()));
        // SAFETY: the caller got it from here, by whichever call.
        unsafe { mi::mi_free(ptr.cast()) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        add(taken(new_size) - taken(layout.size()));
        let both = aligned_anyway(layout) && aligned_anyway(with_size(layout, new_size));
        // SAFETY: the caller got it from here, by whichever call.
        unsafe {
            match both {
                true => mi::mi_realloc(ptr.cast(), new_size).cast(),
                false => mi::mi_realloc_aligned(ptr.cast(), new_size, layout.align()).cast(),
            }
        }
    }
}

fn with_size(layout: Layout, size: usize) -> Layout {
    Layout::from_size_align(size, layout.align()).unwrap_or(layout)
}

/// Bytes that this thread has taken and not given back so far (another thread may give them back).
pub fn held() -> i64 {
    HELD.with(Cell::get)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_alignment_is_kept() {
        for align in [1, 2, 4, 8, 16, 32, 64, 4_096] {
            for size in [1, 7, 8, 15, 16, 24, 100, 1_040, 5_000, 70_000, 3 << 20] {
                let layout = Layout::from_size_align(size, align).unwrap();
                // SAFETY: a layout of a size, given back with the size that it has then.
                unsafe {
                    let ptr = COUNTING.alloc(layout);
                    assert_eq!(ptr as usize % align, 0, "{size} at {align}");
                    ptr.write_bytes(7, size);
                    let ptr = COUNTING.realloc(ptr, layout, 2 * size + 1);
                    assert_eq!(
                        (ptr as usize % align, *ptr.add(size - 1)),
                        (0, 7),
                        "{size} at {align}, grown"
                    );
                    COUNTING.dealloc(ptr, Layout::from_size_align(2 * size + 1, align).unwrap());
                    let ptr = COUNTING.alloc_zeroed(layout);
                    assert_eq!(
                        (ptr as usize % align, *ptr.add(size - 1)),
                        (0, 0),
                        "{size} at {align}, zeroed"
                    );
                    COUNTING.dealloc(ptr, layout);
                }
            }
        }
    }

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
