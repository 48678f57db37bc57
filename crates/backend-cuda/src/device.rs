//! The driver's calls: the one place that speaks to CUDA.
//!
//! A [`Device`] is a context with one stream. Everything runs in the order in which it was asked
//! for, and memory that is freed here may be used at once by what is asked for later. The first
//! failure is kept; after it nothing more is issued.
//!
//! Launches wait in a queue (see [`Queue`]) until it is full or something else is asked for.

use std::ffi::{CString, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cudarc::driver::{result, sys};

use crate::OpenError;
use crate::queue::{Graph, Launch, Queue, Ready};

/// The least CUDA version of the driver, as the driver counts them.
const NEEDED_DRIVER: i32 = 12_000;

/// A context and its stream.
pub(crate) struct Device {
    context: sys::CUcontext,
    handle: sys::CUdevice,
    stream: sys::CUstream,
    /// What to call the device.
    pub(crate) name: String,
    /// Compute capability, major and minor.
    pub(crate) capability: (u32, u32),
    /// Shared memory that one block may use, in bytes.
    pub(crate) shared_bytes: u32,
    /// Multiprocessors.
    pub(crate) processors: u32,
    fault: Mutex<Option<String>>,
    allocations: AtomicUsize,
    queue: Mutex<Queue>,
    /// Results come back through it.
    results: Mutex<Staging>,
    /// Lists go out through it.
    lists: Mutex<Staging>,
}

/// Page-locked host memory.
struct Staging {
    at: *mut c_void,
    bytes: usize,
    /// Bytes from the start that copies under way may still read.
    used: usize,
}

impl Staging {
    const NONE: Self = Self { at: std::ptr::null_mut(), bytes: 0, used: 0 };
}

/// Bytes of lists that can be under way at once.
const LISTS: usize = 4 << 20;

// SAFETY: contexts, streams and page-locked memory may be used from any thread; staging memory and
// the queue's graphs are behind locks.
unsafe impl Send for Device {}
// SAFETY: as above; every call that issues work makes the context current on its own thread.
unsafe impl Sync for Device {}

/// A kernel that is ready to run.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Function(sys::CUfunction);

// SAFETY: a function belongs to a module that is never unloaded and may be launched from any
// thread.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// An argument of a kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arg {
    /// An address on the device, zero for none.
    Address(u64),
    /// `u64`.
    Long(u64),
    /// `u32`.
    Int(u32),
    /// `float`.
    Float(f32),
}

impl From<&Self> for Arg {
    fn from(arg: &Self) -> Self {
        *arg
    }
}

impl From<&u64> for Arg {
    fn from(n: &u64) -> Self {
        Self::Long(*n)
    }
}

impl From<&u32> for Arg {
    fn from(n: &u32) -> Self {
        Self::Int(*n)
    }
}

impl From<&f32> for Arg {
    fn from(x: &f32) -> Self {
        Self::Float(*x)
    }
}

/// How many blocks of how many threads, with how many bytes of shared memory.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Shape {
    pub(crate) grid: (u32, u32),
    pub(crate) block: u32,
    pub(crate) shared: u32,
}

impl Shape {
    /// One thread per number, in blocks of 256.
    pub(crate) fn each(n: usize) -> Self {
        Self { grid: (n.div_ceil(256) as u32, 1), block: 256, shared: 0 }
    }
}

/// An event, and when it was reached.
pub(crate) struct Moment(sys::CUevent);

impl Device {
    pub(crate) fn open(index: usize) -> Result<Self, OpenError> {
        // SAFETY: looks for the library, without calling it.
        if !unsafe { sys::is_culib_present() } {
            return Err(OpenError::NoDriver);
        }
        let failed = |doing| {
            move |e: cudarc::driver::DriverError| OpenError::Driver {
                doing,
                reason: format!("{:?}", e.0),
            }
        };
        result::init().map_err(|e| match e.0 {
            sys::CUresult::CUDA_ERROR_NO_DEVICE => OpenError::NoDevice { index, count: 0 },
            _ => failed("start")(e),
        })?;
        check_driver()?;
        let count = result::device::get_count().map_err(failed("count devices"))? as usize;
        if index >= count {
            return Err(OpenError::NoDevice { index, count });
        }
        let handle = result::device::get(index as c_int).map_err(failed("find the device"))?;
        let name = result::device::get_name(handle).map_err(failed("name the device"))?;
        // SAFETY: `handle` is a device.
        let ask = |what| unsafe { result::device::get_attribute(handle, what) };
        use sys::CUdevice_attribute as A;
        let number = |what| ask(what).map(|n| n as u32).map_err(failed("describe the device"));
        let capability = (
            number(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            number(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        );
        if capability.0 < 8 {
            let found = format!("{}.{}", capability.0, capability.1);
            return Err(OpenError::OldDevice { name, found });
        }
        let shared_bytes = number(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
        let processors = number(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        // SAFETY: `handle` is a device; the context is released when the value is dropped.
        let context = unsafe { result::primary_ctx::retain(handle) };
        let context = context.map_err(failed("make a context"))?;
        // SAFETY: the context was just retained.
        unsafe { result::ctx::set_current(context) }.map_err(failed("use the context"))?;
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking);
        Ok(Self {
            context,
            handle,
            stream: stream.map_err(failed("make a stream"))?,
            name,
            capability,
            shared_bytes,
            processors,
            fault: Mutex::new(None),
            allocations: AtomicUsize::new(0),
            queue: Mutex::default(),
            results: Mutex::new(Staging::NONE),
            lists: Mutex::new(Staging::NONE),
        })
    }

    /// The first failure, if there was one.
    pub(crate) fn fault(&self) -> Option<String> {
        lock(&self.fault).clone()
    }

    /// Keeps a failure, unless there was one before.
    pub(crate) fn fail(&self, reason: String) {
        lock(&self.fault).get_or_insert(reason);
    }

    /// Runs `issue` with the context current, unless the device has failed, and keeps its failure.
    fn issue<T>(
        &self,
        doing: &str,
        issue: impl FnOnce() -> Result<T, cudarc::driver::DriverError>,
    ) -> Option<T> {
        if lock(&self.fault).is_some() {
            return None;
        }
        // SAFETY: the context lives as long as `self`.
        let done = unsafe { result::ctx::set_current(self.context) }.and_then(|()| issue());
        done.map_err(|e| self.fail(format!("could not {doing}: {:?}", e.0))).ok()
    }

    /// Device memory, or `None` if there is none left.
    pub(crate) fn allocate(&self, bytes: usize) -> Option<u64> {
        self.allocations.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the context lives as long as `self`; the memory is not read before it is written.
        unsafe {
            result::ctx::set_current(self.context).ok()?;
            result::malloc_sync(bytes).ok()
        }
    }

    /// How often memory was asked for.
    pub(crate) fn allocations(&self) -> usize {
        self.allocations.load(Ordering::Relaxed)
    }

    /// Gives memory back once everything issued has run.
    ///
    /// # Safety
    /// `address` comes from [`allocate`](Self::allocate) and nothing issued later uses it.
    pub(crate) unsafe fn free(&self, address: u64) {
        self.flush();
        // SAFETY: passed on; a context that is gone took its memory with it, so a failure to free
        // leaves nothing to do.
        let _ = unsafe {
            result::ctx::set_current(self.context).and_then(|()| result::free_sync(address))
        };
    }

    /// Bytes free and in all.
    pub(crate) fn memory(&self) -> Option<(usize, usize)> {
        self.issue("ask for free memory", result::mem_get_info)
    }

    /// Copies to the device.
    ///
    /// # Safety
    /// `bytes.len()` bytes at `to` belong to the caller.
    pub(crate) unsafe fn write(&self, to: u64, bytes: &[u8]) {
        self.flush();
        if bytes.is_empty() {
            return;
        }
        let mut lists = lock(&self.lists);
        if bytes.len() > LISTS / 4 || !self.make_room(&mut lists, bytes.len()) {
            // SAFETY: passed on. The driver takes ordinary host memory in before it returns.
            self.issue("copy to the device", || unsafe {
                result::memcpy_htod_async(to, bytes, self.stream)
            });
            return;
        }
        // SAFETY: there is room from `used` on, which no copy under way reads; the rest is passed
        // on.
        self.issue("copy to the device", || unsafe {
            let at = lists.at.cast::<u8>().add(lists.used);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len());
            let staged = std::slice::from_raw_parts(at, bytes.len());
            result::memcpy_htod_async(to, staged, self.stream)
        });
        lists.used += bytes.len().next_multiple_of(16);
    }

    /// Whether `lists` has room for `bytes` more, which it has after everything under way is done.
    fn make_room(&self, lists: &mut Staging, bytes: usize) -> bool {
        if lists.at.is_null() {
            // SAFETY: plain allocation; freed when the device is dropped.
            let fresh = self.issue("page-lock memory", || unsafe { result::malloc_host(LISTS, 0) });
            let Some(fresh) = fresh else { return false };
            *lists = Staging { at: fresh, bytes: LISTS, used: 0 };
        }
        if lists.used + bytes > lists.bytes {
            // SAFETY: the stream lives as long as `self`.
            self.issue("finish", || unsafe { result::stream::synchronize(self.stream) });
            lists.used = 0;
        }
        true
    }

    /// Fills with zeros.
    ///
    /// # Safety
    /// `bytes` bytes at `to` belong to the caller.
    pub(crate) unsafe fn zero(&self, to: u64, bytes: usize) {
        self.flush();
        if bytes > 0 {
            // SAFETY: passed on.
            self.issue("clear memory", || unsafe {
                result::memset_d8_async(to, 0, bytes, self.stream)
            });
        }
    }

    /// Copies floats to the host, after everything issued before. Empty if the device has failed.
    ///
    /// # Safety
    /// `count` floats at `from` belong to the caller.
    pub(crate) unsafe fn read(&self, from: u64, count: usize) -> Vec<f32> {
        self.flush();
        let mut staging = lock(&self.results);
        let bytes = count * size_of::<f32>();
        if staging.bytes < bytes {
            let old = std::mem::replace(&mut *staging, Staging::NONE).at;
            // SAFETY: the old memory is not in use: every copy into it was waited for.
            let fresh = self.issue("page-lock memory", || unsafe {
                if !old.is_null() {
                    result::free_host(old)?;
                }
                result::malloc_host(bytes, 0)
            });
            let Some(fresh) = fresh else { return Vec::new() };
            *staging = Staging { at: fresh, bytes, used: 0 };
        }
        // SAFETY: `staging` holds `bytes` bytes, aligned to pages, that nobody else uses while it
        // is locked; the copy has ended when the stream has been waited for.
        unsafe {
            let place = std::slice::from_raw_parts_mut(staging.at.cast::<u8>(), bytes);
            let done = self.issue("copy to the host", || {
                result::memcpy_dtoh_async(place, from, self.stream)?;
                result::stream::synchronize(self.stream)
            });
            lock(&self.lists).used = 0;
            lock(&self.queue).idle();
            match done {
                Some(()) => {
                    std::slice::from_raw_parts(staging.at.cast_const().cast::<f32>(), count)
                        .to_vec()
                }
                None => Vec::new(),
            }
        }
    }

    /// Waits for everything asked for.
    pub(crate) fn wait(&self) {
        self.flush();
        // SAFETY: the stream lives as long as `self`.
        self.issue("finish", || unsafe { result::stream::synchronize(self.stream) });
        lock(&self.lists).used = 0;
        lock(&self.queue).idle();
    }

    /// Loads a compiled module and finds its functions.
    pub(crate) fn load(&self, cubin: &[u8], names: &[&str]) -> Result<Vec<Function>, String> {
        let reason = |e: cudarc::driver::DriverError| format!("{:?}", e.0);
        // SAFETY: the image is a whole cubin; the module is never unloaded.
        unsafe {
            result::ctx::set_current(self.context).map_err(reason)?;
            let module = result::module::load_data(cubin.as_ptr().cast()).map_err(reason)?;
            let find = |name: &&str| {
                let name = CString::new(*name).map_err(|e| e.to_string())?;
                let function = result::module::get_function(module, name).map_err(reason)?;
                let most =
                    sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
                let fixed = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES;
                let fixed = result::function::get_function_attribute(function, fixed);
                let left = self.shared_bytes as i32 - fixed.map_err(reason)?;
                result::function::set_function_attribute(function, most, left).map_err(reason)?;
                Ok(Function(function))
            };
            names.iter().map(find).collect()
        }
    }

    /// Asks for a kernel to be launched.
    ///
    /// # Safety
    /// The arguments are those of the kernel's signature, and it stays inside what they name.
    pub(crate) unsafe fn launch(&self, function: Function, shape: Shape, args: &[Arg]) {
        let Shape { grid: (x, y), .. } = shape;
        if x > 0 && y > 0 && lock(&self.queue).push(Launch::new(function, shape, args)) {
            self.flush();
        }
    }

    /// Issues what waits in the queue, as one graph if it has been issued before.
    pub(crate) fn flush(&self) {
        let mut queue = lock(&self.queue);
        match queue.take() {
            Ready::Nothing => {}
            Ready::Known(graph) => {
                // SAFETY: the graph was made for this stream's context and is never destroyed
                // while the queue knows it.
                self.issue("launch a graph", || unsafe {
                    result::graph::launch(graph.0, self.stream)
                });
            }
            Ready::New(launches) => {
                launches.iter().for_each(|launch| self.launch_now(launch));
            }
            Ready::SeenBefore(key, launches) => match self.capture(&launches) {
                Some(graph) => {
                    // SAFETY: as above.
                    self.issue("launch a graph", || unsafe {
                        result::graph::launch(graph.0, self.stream)
                    });
                    for old in queue.keep(key, launches, graph) {
                        // SAFETY: the queue no longer knows it; the driver lets a launched graph
                        // run to its end.
                        self.issue("drop a graph", || unsafe {
                            result::graph::exec_destroy(old.0)
                        });
                    }
                }
                None => launches.iter().for_each(|launch| self.launch_now(launch)),
            },
        }
    }

    /// Launches a kernel at once, letting it start while the one before still runs.
    fn launch_now(&self, launch: &Launch) {
        let mut args = launch.args();
        let mut attribute = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let Shape { grid: (x, y), block, shared } = launch.shape;
        let config = sys::CUlaunchConfig {
            gridDimX: x,
            gridDimY: y,
            gridDimZ: 1,
            blockDimX: block,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: shared,
            hStream: self.stream,
            attrs: &raw mut attribute,
            numAttrs: u32::from(self.capability.0 >= 9),
        };
        // SAFETY: whoever asked for the launch vouched for its arguments; the driver copies them
        // before it returns. Kernels wait for their inputs themselves.
        self.issue("launch a kernel", || unsafe {
            let none = std::ptr::null_mut();
            sys::cuLaunchKernelEx(&raw const config, launch.function.0, args.as_mut_ptr(), none)
                .result()
        });
    }

    /// Makes a graph of launches, without running them.
    fn capture(&self, launches: &[Launch]) -> Option<Graph> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream lives as long as `self`; nothing but launches happens meanwhile.
        self.issue("start a graph", || unsafe {
            result::stream::begin_capture(self.stream, mode)
        })?;
        launches.iter().for_each(|launch| self.launch_now(launch));
        // SAFETY: a capture is under way.
        let graph =
            self.issue("end a graph", || unsafe { result::stream::end_capture(self.stream) })?;
        let mut made = std::ptr::null_mut();
        // SAFETY: the graph was just made; it is not needed any more once instantiated.
        self.issue("make a graph", || unsafe {
            sys::cuGraphInstantiateWithFlags(&raw mut made, graph, 0).result()?;
            result::graph::destroy(graph)
        })?;
        Some(Graph(made))
    }

    /// Marks this moment of the stream.
    pub(crate) fn moment(&self) -> Option<Moment> {
        self.flush();
        self.issue("mark a moment", || {
            let event = result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT)?;
            // SAFETY: the event was just made, the stream lives as long as `self`.
            unsafe { result::event::record(event, self.stream)? };
            Ok(Moment(event))
        })
    }

    /// Milliseconds from one moment to another, both reached; forgets them.
    pub(crate) fn between(&self, from: Moment, to: Moment) -> Option<f32> {
        // SAFETY: both events are ours and have been recorded.
        self.issue("compare moments", || unsafe {
            let elapsed = result::event::elapsed(from.0, to.0);
            result::event::destroy(from.0)?;
            result::event::destroy(to.0)?;
            elapsed
        })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let staging = [lock(&self.results).at, lock(&self.lists).at];
        // SAFETY: nothing else holds the context; failures on the way out have no remedy.
        unsafe {
            let _ = result::ctx::set_current(self.context);
            let _ = result::stream::synchronize(self.stream);
            for memory in staging.into_iter().filter(|memory| !memory.is_null()) {
                let _ = result::free_host(memory);
            }
            let _ = result::stream::destroy(self.stream);
            let _ = result::primary_ctx::release(self.handle);
        }
    }
}

fn check_driver() -> Result<(), OpenError> {
    let mut version = 0;
    // SAFETY: writes one integer.
    let _ = unsafe { sys::cuDriverGetVersion(&raw mut version) };
    if version >= NEEDED_DRIVER {
        return Ok(());
    }
    let dotted = |v: i32| format!("{}.{}", v / 1000, v % 1000 / 10);
    Err(OpenError::OldDriver { found: dotted(version), needed: dotted(NEEDED_DRIVER) })
}

/// A lock that is never left in a bad state: every holder only swaps whole values.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
