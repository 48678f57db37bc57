//! Whether a model and its cache fit, before anything is loaded.

use lapidary_cache::{Extent, KvBytes, KvSpec, largest_context};
use lapidary_core::TensorSource;
use lapidary_model::config::Config;

use crate::args::DeviceArgs;
use crate::device::DeviceName;
use crate::engine::{extent, stored_layers};
use crate::failure::Failure;
use crate::info::size;

/// What a step needs besides weights and cache: activations of a few hundred rows.
const WORKING_BYTES: u64 = 256 << 20;

/// Refuses what does not fit into the memory that is free, saying what would. Other devices than
/// the CPU refuse for themselves.
pub(crate) fn check(
    source: &dyn TensorSource,
    config: &Config,
    args: &DeviceArgs,
    extent: Extent,
) -> Result<(), Failure> {
    if args.device() != DeviceName::Cpu {
        return Ok(());
    }
    let Some(free) = free_bytes() else { return Ok(()) };
    let weights = weight_bytes(source);
    let layers: Vec<_> = stored_layers(config, &args.kv).collect();
    let cache = KvBytes::per_slot(&extent, layers.iter().copied()).total() * extent.slots as u64;
    let fixed = weights.saturating_add(WORKING_BYTES);
    if fixed.saturating_add(cache) <= free {
        return Ok(());
    }
    let (weights, cache, free_text) = (size(weights), size(cache), size(free));
    let context = extent.context;
    let needs = format!(
        "{weights} of weights and {cache} of cache for {context} tokens do not fit into \
         {free_text} of free memory"
    );
    let remedy = match largest_context(&extent, &layers, free.saturating_sub(fixed)) {
        Some(most) => format!("use --ctx {most} or less, or a smaller --kv"),
        None => "use a smaller model".into(),
    };
    Err(Failure::work("memory", format!("{needs}; {remedy}")))
}

/// The longest sequence, up to the model's own context, that fits into `free` bytes beside the
/// weights; `None` if not even the shortest does.
pub(crate) fn fitting_context(
    source: &dyn TensorSource,
    config: &Config,
    kv: &KvSpec,
    free: u64,
) -> Option<u32> {
    let layers: Vec<_> = stored_layers(config, kv).collect();
    let fixed = weight_bytes(source).saturating_add(WORKING_BYTES);
    largest_context(&extent(config.context), &layers, free.checked_sub(fixed)?)
}

fn weight_bytes(source: &dyn TensorSource) -> u64 {
    let names = source.names();
    names.iter().filter_map(|name| source.info(name)).map(|info| info.bytes() as u64).sum()
}

/// Memory that can be had without pushing others out, where the system tells.
pub(crate) fn free_bytes() -> Option<u64> {
    told("MemAvailable:")
}

/// All memory of the machine, where the system tells.
pub(crate) fn all_bytes() -> Option<u64> {
    told("MemTotal:")
}

fn told(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}
