//! The memory of a program: counted, and when it is used up the program has ended.
//!
//! An engine that gets no memory throws whatever it then can, at times nothing at all, and a program may catch it. So that
//! no engine has to say it, the allocator does.

use rquickjs::allocator::Allocator;

/// Gives memory up to a bound.
pub(super) struct Bounded {
    left: usize,
    /// Called once it is used up.
    used_up: fn() -> !,
}

impl Bounded {
    pub fn new(most: usize, used_up: fn() -> !) -> Bounded {
        Bounded { left: most, used_up }
    }

    /// Ends the program where there is not so much more.
    fn need(&self, size: usize) {
        if size > self.left {
            (self.used_up)();
        }
    }

    /// Counts what was given, which may be more than was asked for.
    fn given(&mut self, at: *mut libc::c_void) -> *mut u8 {
        if at.is_null() {
            (self.used_up)();
        }
        // SAFETY: it was just given by the C library's allocator.
        let size = unsafe { libc::malloc_usable_size(at) };
        self.left = self.left.saturating_sub(size);
        at.cast()
    }
}

// SAFETY: all of it is given, taken back and measured by the C library's allocator, which aligns for every type.
unsafe impl Allocator for Bounded {
    fn alloc(&mut self, size: usize) -> *mut u8 {
        self.need(size);
        // SAFETY: any size may be asked for.
        self.given(unsafe { libc::malloc(size) })
    }

    fn calloc(&mut self, count: usize, size: usize) -> *mut u8 {
        self.need(count.saturating_mul(size));
        // SAFETY: any size may be asked for.
        self.given(unsafe { libc::calloc(count, size) })
    }

    unsafe fn dealloc(&mut self, ptr: *mut u8) {
        // SAFETY: as the caller promises, it is one that was given here.
        unsafe {
            self.left += libc::malloc_usable_size(ptr.cast());
            libc::free(ptr.cast());
        }
    }

    unsafe fn realloc(&mut self, ptr: *mut u8, new_size: usize) -> *mut u8 {
        // SAFETY: as the caller promises, it is one that was given here.
        let before = if ptr.is_null() { 0 } else { unsafe { libc::malloc_usable_size(ptr.cast()) } };
        self.need(new_size.saturating_sub(before));
        if new_size == 0 && !ptr.is_null() {
            // SAFETY: the same.
            unsafe { self.dealloc(ptr) };
            return std::ptr::null_mut();
        }
        self.left += before;
        // SAFETY: the same.
        self.given(unsafe { libc::realloc(ptr.cast(), new_size) })
    }

    unsafe fn usable_size(ptr: *mut u8) -> usize {
        // SAFETY: as the caller promises, it is one that was given here.
        unsafe { libc::malloc_usable_size(ptr.cast()) }
    }
}
