//! Device memory that is reused: a step's buffers are the last step's, so that a steady engine
//! asks the driver for nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use crate::device::{Device, lock};

/// Free memory, by size.
pub(crate) struct Pool {
    device: Arc<Device>,
    /// The lowest address is taken first: equal steps then get equal addresses, which is what
    /// lets them be replayed.
    free: Mutex<BTreeMap<usize, BTreeSet<u64>>>,
}

/// Memory on the device, returned to its pool when dropped. Work is issued in order, so whoever
/// gets it next writes it after everything issued so far has read it.
pub(crate) struct Buffer {
    address: u64,
    bytes: usize,
    size: usize,
    pool: Arc<Pool>,
}

impl Pool {
    pub(crate) fn new(device: Arc<Device>) -> Arc<Self> {
        Arc::new(Self { device, free: Mutex::default() })
    }

    /// At least `bytes` bytes of anything, or `None` if the device is full.
    pub(crate) fn try_get(self: &Arc<Self>, bytes: usize) -> Option<Buffer> {
        let size = size_class(bytes);
        let kept = lock(&self.free).get_mut(&size).and_then(BTreeSet::pop_first);
        let fresh = || {
            self.device.allocate(size).or_else(|| {
                self.trim();
                self.device.allocate(size)
            })
        };
        let address = kept.or_else(fresh)?;
        Some(Buffer { address, bytes, size, pool: Arc::clone(self) })
    }

    /// Likewise; running out is the device's failure.
    pub(crate) fn get(self: &Arc<Self>, bytes: usize) -> Buffer {
        self.try_get(bytes).unwrap_or_else(|| {
            self.device.fail(format!("there is no room for {bytes} more bytes on the device"));
            Buffer { address: 0, bytes, size: 0, pool: Arc::clone(self) }
        })
    }

    /// Gives everything that is free back to the driver.
    fn trim(&self) {
        for (_, addresses) in std::mem::take(&mut *lock(&self.free)) {
            for address in addresses {
                // SAFETY: it came from `allocate`, and no buffer holds it. The driver waits for
                // what was issued before.
                unsafe { self.device.free(address) };
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.trim();
    }
}

impl Buffer {
    /// Where it is; zero if there was no room, in which case nothing is issued any more.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// Bytes that were asked for.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes from the start.
    pub(crate) fn write(&self, bytes: &[u8]) {
        assert!(bytes.len() <= self.bytes, "{} bytes into {}", bytes.len(), self.bytes);
        // SAFETY: the memory is this buffer's and large enough.
        unsafe { self.pool.device.write(self.address, bytes) };
    }

    /// Fills with zeros.
    pub(crate) fn zero(&self) {
        // SAFETY: the memory is this buffer's.
        unsafe { self.pool.device.zero(self.address, self.bytes) };
    }

    /// The first `count` floats.
    pub(crate) fn read(&self, count: usize) -> Vec<f32> {
        assert!(count * 4 <= self.bytes, "{count} floats of {} bytes", self.bytes);
        // SAFETY: the memory is this buffer's and large enough.
        unsafe { self.pool.device.read(self.address, count) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.address != 0 {
            lock(&self.pool.free).entry(self.size).or_default().insert(self.address);
        }
    }
}

/// Sizes in eight steps per doubling: buffers of about the same size are exchangeable.
fn size_class(bytes: usize) -> usize {
    const LEAST: usize = 512;
    let bytes = bytes.max(LEAST);
    let step = bytes.next_power_of_two() / 16;
    bytes.next_multiple_of(step.max(LEAST / 8))
}

#[cfg(test)]
mod tests {
    use super::size_class;

    #[test]
    fn size_classes_waste_at_most_an_eighth() {
        for bytes in (1..200_000).step_by(37) {
            let class = size_class(bytes);
            assert!(class >= bytes.max(512), "{bytes} into {class}");
            assert!(class <= bytes.max(512) * 9 / 8, "{bytes} into {class}");
            assert_eq!(size_class(class), class);
        }
    }
}
