//! The compute device: casts, rows, boxes and byte order on any Vulkan, Metal or DX12 adapter, with the bits and the
//! counts of the processor.
//!
//! [`adapters`] lists what there is, [`Gpu::open`] opens one, which then is a
//! [`Device`](weightlift_kernels::device::Device) like the processor. Its shaders compute in integers
//! ([`weightlift_shaders`]), and it is handed out only after known answers came back right.
//!
//! ```
//! use weightlift_gpu::{Choice, Gpu, Settings};
//! use weightlift_kernels::device::Device;
//! match Gpu::open(&Choice::Any, Settings::default()) {
//!     Ok(gpu) => println!("{} runs jobs of up to {} bytes", gpu.name(), gpu.capacity().source),
//!     Err(error) => println!("{error}"),
//! }
//! ```
//!
//! # One job
//! ```text
//!  fill           submit                                   wait
//!  bytes ─▶ upload ─copy▶ input ─shader▶ output ─copy▶ download ─▶ bytes
//!           mapped        source         counts         mapped
//!                         table          result
//!                         parameters
//! ```
//! Each tile has these buffers from the beginning, so that nothing is allocated for a tensor; as many tiles as
//! [`Settings::tiles`] says are on their way at once, one uploading while another computes and a third is read. Where
//! processor and adapter share memory, `input` is what is filled and `output` what is read, and both copies fall away.
//!
//! # Failure
//! Lost devices, refused submissions, failed maps, memory that ran out and jobs that take too long all become an error
//! of kind `Device`, after which the device takes no more work. Whoever submitted the job still has its bytes and does
//! it on the processor.
#![forbid(unsafe_code)]

mod adapter;
mod buffers;
mod context;
mod dispatch;
mod measure;
mod quiet;
mod settings;
mod tile;
mod vectors;

pub use adapter::{Adapter, Choice, adapters};
pub use context::Gpu;
pub use settings::{Faults, Settings};
