//! How the buffers of a tile are parted.

use crate::settings::Settings;
use weightlift_kernels::device::{Capacity, GRANULE};

/// What offsets of bindings are multiples of, on every adapter.
const ALIGNMENT: u64 = 256;
/// Bytes of the parameters of one dispatch.
pub(crate) const PARAMS: u64 = 96;
/// Bytes from one dispatch's parameters to the next one's.
pub(crate) const PARAMS_STRIDE: u64 = 256;
/// Most dispatches in one job.
pub(crate) const DISPATCHES: u64 = 64;
/// Bytes of a granule's or a row's place in the table, at least.
const TABLE_ENTRY: u64 = 4;

/// The parts of a tile's buffers, in bytes: `input` is source, table and parameters, `output` is counts and result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parts {
    pub(crate) source: u64,
    pub(crate) table: u64,
    pub(crate) counts: u64,
    pub(crate) result: u64,
    /// Most workgroups along a dimension.
    pub(crate) groups: u32,
}

impl Parts {
    /// The largest that suit an adapter with these limits.
    pub(crate) fn new(settings: &Settings, software: bool, max_binding: u64, max_buffer: u64, groups: u32) -> Parts {
        let groups = groups.min(settings.max_groups.unwrap_or(u32::MAX)).max(1);
        let binding = max_binding.min(settings.max_binding.unwrap_or(u64::MAX)).min(i32::MAX as u64);
        // A quarter of a buffer at most for the source, so that the rest has room beside it.
        let most = binding.min(max_buffer / 4);
        let wanted = settings.tile_bytes.unwrap_or(if software { 4 << 20 } else { 16 << 20 });
        let across = u64::from(groups).saturating_mul(u64::from(groups)).saturating_mul(DISPATCHES * GRANULE);
        let tile = down(wanted.min(most).min(across)).max(8 * GRANULE);
        // An entry for each row of 16 elements of one byte would be as much again; rows shorter than that are few.
        let table = down((tile / 8).min(binding)).max(2 * ALIGNMENT);
        let counts = down((tile / 16).clamp(16 * 64, 64 << 10)).max(ALIGNMENT);
        Parts { source: tile, table, counts, result: tile, groups }
    }

    pub(crate) fn input(&self) -> u64 {
        self.params_at() + DISPATCHES * PARAMS_STRIDE
    }

    pub(crate) fn table_at(&self) -> u64 {
        self.source
    }

    pub(crate) fn params_at(&self) -> u64 {
        self.source + self.table
    }

    pub(crate) fn output(&self) -> u64 {
        self.counts + self.result
    }

    pub(crate) fn capacity(&self) -> Capacity {
        let rows = self.table / TABLE_ENTRY;
        Capacity { source: self.source, result: self.result, segments: self.counts / 16, rows }
    }
}

fn down(bytes: u64) -> u64 {
    bytes / ALIGNMENT * ALIGNMENT
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every part fits its binding, and the buffers fit, on adapters that allow anything and on those that allow little.
    #[test]
    fn parts_suit_every_adapter() {
        for binding in [64 << 10, 128 << 20, i32::MAX as u64, u64::MAX] {
            for buffer in [256 << 10, 256 << 20, u64::MAX] {
                for groups in [4, 65535, u32::MAX] {
                    let parts = Parts::new(&Settings::default(), false, binding, buffer, groups);
                    let most = [parts.source, parts.table, parts.counts, parts.result].into_iter().max();
                    assert!(most.is_some_and(|most| most <= binding), "{parts:?} in bindings of {binding}");
                    assert!(parts.input() <= buffer && parts.output() <= buffer, "{parts:?} in buffers of {buffer}");
                    let granules = parts.source.max(parts.result) / GRANULE;
                    let dispatched = u64::from(groups).saturating_mul(u64::from(groups)).saturating_mul(DISPATCHES);
                    assert!(granules <= dispatched, "{parts:?} in {groups} groups");
                }
            }
        }
    }
}
