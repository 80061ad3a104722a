//! Buffers lent to the kernel for input: it takes one only when bytes are there to put into it.
//!
//! So a thousand silent connections hold none. The kernel takes them from a ring in memory shared
//! with it, in the order they were put there; giving one back is two stores. Where it can (6.12),
//! it fills a buffer with the input of many connections, one behind the other, so that what a turn
//! reads lies together.
//!
//! Contract of the unsafe parts: the kernel writes to a buffer only while the owning thread is
//! inside a system call on the ring (its work is deferred to those calls), so never while a
//! reference made by [`Buffers::bytes`] lives; both memories are freed only when the kernel has
//! let go of them, or never.
#![expect(unsafe_code, reason = "memory shared with the kernel; the contract is above")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::Submitter;
use io_uring::types::BufRingEntry;

/// Buffers of a thread; a power of two, as the kernel asks.
const COUNT: u16 = 64;
/// Has the kernel go on in a buffer where it stopped (`IOU_PBUF_RING_INC`).
const INCREMENTAL: u16 = 2;
/// Bytes of one. A pipeline of 64 commands of 100 bytes fits.
const SIZE: usize = LEN as usize;
const LEN: u32 = 16 << 10;
const PAGE: usize = 4_096;

/// The buffers and the ring they are lent through.
#[derive(Debug)]
pub(super) struct Buffers {
    ring: NonNull<BufRingEntry>,
    memory: NonNull<u8>,
    tail: u16,
    /// How far each buffer is filled.
    filled: [usize; COUNT as usize],
}

// SAFETY: both memories are owned by this value alone; the kernel uses them on behalf of whichever
// thread has it.
unsafe impl Send for Buffers {}

/// What the kernel put into a buffer, or a part of one.
#[derive(Clone, Copy, Debug)]
pub(in crate::server) struct Filled {
    buffer: u16,
    from: usize,
    len: usize,
    /// The buffer is full, or not gone on with.
    last: bool,
}

fn ring_layout() -> Layout {
    // A page at least, and a power of two: neither can be refused.
    Layout::from_size_align(usize::from(COUNT) * size_of::<BufRingEntry>(), PAGE)
        .unwrap_or(Layout::new::<[BufRingEntry; COUNT as usize]>())
}

fn memory_layout() -> Layout {
    Layout::from_size_align(usize::from(COUNT) * SIZE, PAGE)
        .unwrap_or(Layout::new::<[u8; COUNT as usize * SIZE]>())
}

fn allocate(layout: Layout) -> NonNull<u8> {
    // SAFETY: neither layout is empty.
    NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap_or_else(|| handle_alloc_error(layout))
}

impl Buffers {
    /// Allocates the buffers and lends all of them as `group`.
    ///
    /// # Errors
    /// The kernel does not know of such rings, or refuses one.
    pub(super) fn register(submitter: &Submitter<'_>, group: u16) -> io::Result<Self> {
        let mut buffers = Self {
            ring: allocate(ring_layout()).cast(),
            memory: allocate(memory_layout()),
            tail: 0,
            filled: [0; COUNT as usize],
        };
        let address = buffers.ring.as_ptr() as u64;
        // SAFETY: the memory has room for `COUNT` entries, is aligned to a page, and is freed only
        // by `drop`, which whoever owns these buffers beside the ring lets happen after the ring's.
        let register =
            |flags| unsafe { submitter.register_buf_ring_with_flags(address, COUNT, group, flags) };
        register(INCREMENTAL).or_else(|_| register(0))?;
        for buffer in 0..COUNT {
            buffers.put(buffer);
        }
        buffers.publish();
        Ok(buffers)
    }

    fn put(&mut self, buffer: u16) {
        let place = usize::from(self.tail % COUNT);
        self.filled[usize::from(buffer)] = 0;
        // SAFETY: `place` is below `COUNT`, `buffer` as well; the kernel does not read entries from
        // the published tail on.
        unsafe {
            let entry = &mut *self.ring.as_ptr().add(place);
            entry.set_addr(self.memory.as_ptr().add(usize::from(buffer) * SIZE) as u64);
            entry.set_len(LEN);
            entry.set_bid(buffer);
        }
        self.tail = self.tail.wrapping_add(1);
    }

    /// Lets the kernel see what was put.
    fn publish(&mut self) {
        // SAFETY: the tail lies inside the ring's first entry, two bytes wide and aligned to them.
        let tail = unsafe { &*BufRingEntry::tail(self.ring.as_ptr()).cast::<AtomicU16>() };
        tail.store(self.tail, Ordering::Release);
    }

    /// Notes that the kernel has put `len` bytes into a buffer, and whether it goes on there.
    pub(super) fn note(&mut self, buffer: u16, len: usize, more: bool) -> Filled {
        let buffer = buffer % COUNT;
        let from = self.filled[usize::from(buffer)];
        let len = len.min(SIZE - from);
        self.filled[usize::from(buffer)] = from + len;
        Filled { buffer, from, len, last: !more }
    }

    /// What is in a buffer that was not given back yet.
    pub(super) fn bytes(&self, filled: Filled) -> &[u8] {
        // SAFETY: inside the memory (`note` sees to that) and initialised, with zeros or by the
        // kernel, which writes only inside calls that take the ring exclusively.
        unsafe {
            let buffer = self.memory.as_ptr().add(usize::from(filled.buffer) * SIZE);
            std::slice::from_raw_parts(buffer.add(filled.from), filled.len)
        }
    }

    /// It is read: with the last part of a buffer, that is lent again. Parts of it that are not
    /// read yet must be before the ring's next call.
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
            dealloc(self.ring.as_ptr().cast(), ring_layout());
            dealloc(self.memory.as_ptr(), memory_layout());
        }
    }
}
