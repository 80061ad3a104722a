//! Buffers lent to the kernel for input: it uses one only when there are bytes to put into it.
//!
//! So a thousand idle connections use none. The kernel takes them from a ring in shared memory, in
//! the order in which they were added; returning one is two stores. If it can (6.12), the kernel
//! fills a buffer with the input of many connections, one after another, so that the input of a
//! turn is contiguous.
//!
//! Contract of the unsafe parts: the kernel writes to a buffer only while the owning thread is
//! inside a system call on the ring (its work is deferred to those calls), so never while a
//! reference made by [`Buffers::bytes`] lives; both memories are freed only when the kernel has
//! released them, or never.
#![expect(unsafe_code, reason = "memory shared with the kernel; the contract is above")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::Submitter;
use io_uring::types::BufRingEntry;

/// Makes the kernel continue in a buffer where it stopped (`IOU_PBUF_RING_INC`).
const INCREMENTAL: u16 = 2;
/// Buffers in which the kernel continues: few and large, so that few pipelines are split at their
/// ends, and in total small enough to stay in a core's cache.
const SHARED: Shape = Shape { count: 8, size: 64 << 10 };
/// Buffers of one piece of input each.
const SINGLE: Shape = Shape { count: 64, size: 16 << 10 };
const PAGE: usize = 4_096;

/// The number of buffers (a power of two, as the kernel requires), and their size in bytes.
#[derive(Clone, Copy, Debug)]
struct Shape {
    count: u16,
    size: u32,
}

impl Shape {
    fn ring(self) -> Layout {
        layout(usize::from(self.count) * size_of::<BufRingEntry>())
    }

    fn memory(self) -> Layout {
        layout(usize::from(self.count) * self.size as usize)
    }
}

/// Whole pages.
fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, PAGE)
        .expect("a page is a power of two, and this is a few of them")
}

/// The buffers and the ring they are lent through.
#[derive(Debug)]
pub(super) struct Buffers {
    shape: Shape,
    ring: NonNull<BufRingEntry>,
    memory: NonNull<u8>,
    tail: u16,
    /// How many bytes of each buffer are filled.
    filled: Vec<usize>,
}

// SAFETY: both memories are owned by this value alone; the kernel uses them on behalf of the thread
// that has it.
unsafe impl Send for Buffers {}

/// Input that the kernel put into a buffer, or into a part of one.
#[derive(Clone, Copy, Debug)]
pub(in crate::server) struct Filled {
    buffer: u16,
    from: usize,
    len: usize,
    /// Whether the kernel does not continue in the buffer.
    last: bool,
}

fn allocate(layout: Layout) -> NonNull<u8> {
    // SAFETY: neither layout is empty.
    NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap_or_else(|| handle_alloc_error(layout))
}

impl Buffers {
    /// Allocates the buffers and lends all of them as `group`.
    ///
    /// # Errors
    /// The kernel does not support such rings, or refuses one.
    pub(super) fn register(submitter: &Submitter<'_>, group: u16) -> io::Result<Self> {
        Self::register_shaped(submitter, group, SHARED, INCREMENTAL)
            .or_else(|_| Self::register_shaped(submitter, group, SINGLE, 0))
    }

    fn register_shaped(
        submitter: &Submitter<'_>,
        group: u16,
        shape: Shape,
        flags: u16,
    ) -> io::Result<Self> {
        let mut buffers = Self {
            shape,
            ring: allocate(shape.ring()).cast(),
            memory: allocate(shape.memory()),
            tail: 0,
            filled: vec![0; usize::from(shape.count)],
        };
        let address = buffers.ring.as_ptr() as u64;
        // SAFETY: the memory has room for `count` entries, is aligned to a page, and is freed only
        // by `drop`, which the owner of both the ring and these buffers runs after the ring's.
        unsafe { submitter.register_buf_ring_with_flags(address, shape.count, group, flags)? };
        for buffer in 0..shape.count {
            buffers.put(buffer);
        }
        buffers.publish();
        Ok(buffers)
    }

    fn put(&mut self, buffer: u16) {
        let Shape { count, size } = self.shape;
        let place = usize::from(self.tail % count);
        let start = usize::from(buffer % count) * size as usize;
        self.filled[usize::from(buffer % count)] = 0;
        // SAFETY: `place` is below `count`, `start` inside the memory; the kernel does not read
        // entries from the published tail on.
        unsafe {
            let entry = &mut *self.ring.as_ptr().add(place);
            entry.set_addr(self.memory.as_ptr().add(start) as u64);
            entry.set_len(size);
            entry.set_bid(buffer % count);
        }
        self.tail = self.tail.wrapping_add(1);
    }

    /// Publishes the added buffers to the kernel.
    fn publish(&mut self) {
        // SAFETY: the tail lies inside the ring's first entry, two bytes wide and aligned to them.
        let tail = unsafe { &*BufRingEntry::tail(self.ring.as_ptr()).cast::<AtomicU16>() };
        tail.store(self.tail, Ordering::Release);
    }

    /// Records that the kernel has put `len` bytes into a buffer, and whether it continues there.
    pub(super) fn note(&mut self, buffer: u16, len: usize, more: bool) -> Filled {
        let buffer = buffer % self.shape.count;
        let from = self.filled[usize::from(buffer)];
        let len = len.min(self.shape.size as usize - from);
        self.filled[usize::from(buffer)] = from + len;
        Filled { buffer, from, len, last: !more }
    }

    /// Returns the contents of a buffer that has not been returned yet.
    pub(super) fn bytes(&self, filled: Filled) -> &[u8] {
        // SAFETY: inside the memory (`note` ensures that) and initialised, with zeros or by the
        // kernel, which writes only inside calls that take the ring exclusively.
        unsafe {
            let start = usize::from(filled.buffer) * self.shape.size as usize + filled.from;
            std::slice::from_raw_parts(self.memory.as_ptr().add(start), filled.len)
        }
    }

    /// Returns a part that was read; the last part returns the buffer to the kernel. All other
    /// parts of the buffer must be read before the ring's next call.
    pub(super) fn give_back(&mut self, filled: Filled) {
        if filled.last {
            self.put(filled.buffer);
            self.publish();
        }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: allocated with these layouts; the ring is closed, see `register`.
        unsafe {
            dealloc(self.ring.as_ptr().cast(), self.shape.ring());
            dealloc(self.memory.as_ptr(), self.shape.memory());
        }
    }
}
