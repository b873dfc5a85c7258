//! The processor as a device: the definition of every job.

use super::{Capacity, Convert, Device, Done, Job, Kernel, Pick, Tile};
use crate::cast::{self, Tally};
use crate::{strided, swap};
use weightlift_core::{Error, Layout, Result};

/// The processor. It does a job when it is submitted, on the thread that does so.
#[derive(Debug, Clone, Copy, Default)]
pub struct Processor(());

impl Device for Processor {
    fn name(&self) -> String {
        "processor".to_owned()
    }

    fn has(&self, _: &Kernel) -> bool {
        true
    }

    fn capacity(&self) -> Capacity {
        Capacity { source: 1 << 30, result: 1 << 30, segments: 1 << 20, rows: 1 << 28 }
    }

    fn tiles(&self) -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }

    fn lease(&self) -> Result<Box<dyn Tile + '_>> {
        Ok(Box::new(Memory { capacity: self.capacity(), ..Memory::default() }))
    }
}

struct Memory {
    capacity: Capacity,
    source: Vec<u8>,
    result: Vec<u8>,
    tallies: Vec<Tally>,
}

impl Default for Memory {
    fn default() -> Memory {
        let capacity = Capacity { source: 0, result: 0, segments: 0, rows: 0 };
        Memory { capacity, source: Vec::new(), result: Vec::new(), tallies: Vec::new() }
    }
}

impl Tile for Memory {
    fn fill(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = offset.saturating_add(bytes.len() as u64);
        if end > self.capacity.source {
            return Err(Error::limit(format!("{end} bytes for a tile of {}", self.capacity.source)));
        }
        if self.source.len() < end as usize {
            self.source.resize(end as usize, 0);
        }
        self.source[offset as usize..end as usize].copy_from_slice(bytes);
        Ok(())
    }

    fn submit(&mut self, job: &Job) -> Result<()> {
        self.source.resize(job.source_bytes() as usize, 0);
        self.tallies = Processor::run(job, &self.source, &mut self.result)?;
        Ok(())
    }

    fn wait(&mut self) -> Result<Done<'_>> {
        Ok(Done { bytes: &self.result, tallies: std::mem::take(&mut self.tallies) })
    }
}

impl Processor {
    /// Carries out a job over the bytes of its source; `result` becomes as long as the job's is.
    ///
    /// # Errors
    /// `Malformed` where the source has another length than the job's.
    pub fn run(job: &Job, source: &[u8], result: &mut Vec<u8>) -> Result<Vec<Tally>> {
        if source.len() as u64 != job.source_bytes() {
            let expected = job.source_bytes();
            return Err(Error::malformed(format!("a job over {expected} bytes was given {}", source.len())));
        }
        let (from, to) = job.kernel.convert.bytes();
        result.resize(job.result_bytes() as usize, 0);
        match &job.pick {
            Pick::Segments(segments) => {
                let places = job.source_offsets().zip(job.result_offsets()).zip(segments);
                let run = |((at, into), &elements): ((u64, u64), &u64)| {
                    let source = &source[at as usize..][..elements as usize * from];
                    Processor::convert(job.kernel, source, &mut result[into as usize..][..elements as usize * to])
                };
                Ok(places.map(run).collect())
            }
            Pick::Rows { row, table, .. } => {
                let len = *row as usize * from;
                let picked: Vec<u8> =
                    table.iter().flat_map(|&at| &source[at as usize * len..][..len]).copied().collect();
                Ok(vec![Processor::convert(job.kernel, &picked, result)])
            }
            Pick::Strided { layout, dims, .. } => {
                let mut picked = vec![0; result.len() / to * from];
                let layout = Layout { offset: layout.offset, strides: layout.strides.clone() };
                strided::gather(source, from, &layout, dims, &mut picked)?;
                Ok(vec![Processor::convert(job.kernel, &picked, result)])
            }
            Pick::Scatter { row, table, .. } => {
                let (row_from, row_to) = (*row as usize * from, *row as usize * to);
                result.copy_from_slice(&source[job.base_offset() as usize..]);
                let mut tally = Tally::default();
                for (source, &at) in source.chunks_exact(row_from).zip(table) {
                    tally.merge(&Processor::convert(job.kernel, source, &mut result[at as usize * row_to..][..row_to]));
                }
                Ok(vec![tally])
            }
        }
    }

    /// Converts dense elements that follow each other.
    ///
    /// # Panics
    /// If the lengths are not those of one and the same number of elements.
    pub fn convert(kernel: Kernel, source: &[u8], result: &mut [u8]) -> Tally {
        let (from, _) = kernel.convert.bytes();
        let turned = kernel.swap.then(|| {
            let mut bytes = source.to_vec();
            swap::byteswap(from, &mut bytes);
            bytes
        });
        let source = turned.as_deref().unwrap_or(source);
        match kernel.convert {
            Convert::Same { .. } => {
                result.copy_from_slice(source);
                Tally::default()
            }
            Convert::Cast { pair, overflow } => cast::cast(pair, overflow, source, result),
        }
    }
}
