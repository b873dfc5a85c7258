// What every kernel is given. Four storage buffers are all that some adapters have.
struct Params {
    // The granules of this dispatch, and how many of them make a row of workgroups.
    first: u32,
    end: u32,
    across: u32,
    // Elements of the whole result, or of the source where rows are scattered.
    elements: u32,
    // Elements of a row.
    row: u32,
    rank: u32,
    offset: u32,
    unused: u32,
    // Of a box picked from strided storage: the extent of each axis, and how far its neighbours lie apart.
    dims: array<vec4<u32>, 2>,
    strides: array<vec4<u32>, 2>,
}

@group(0) @binding(0) var<storage, read> source: array<u32>;
@group(0) @binding(2) var<storage, read_write> tally: array<atomic<u32>>;
@group(0) @binding(3) var<storage, read> table: array<u32>;
@group(0) @binding(4) var<uniform> params: Params;

const NOTHING: u32 = 4u;
const OVERFLOW: u32 = 0u;
const TO_ZERO: u32 = 1u;
const SUBNORMAL: u32 = 2u;
const NAN: u32 = 3u;

const QUIET: u32 = 0x00400000u;
const INFINITY: u32 = 0x7f800000u;

// A number on its way: the f32 that has its value, a NaN quiet; and whether its own format held it as a subnormal.
struct Wide {
    word: u32,
    subnormal: bool,
}

// A code of the target, and what the number lost on the way.
struct Coded {
    code: To,
    loss: u32,
}

// The granule of a workgroup; beyond the last, where the dispatch's last row of workgroups is not full.
fn granule_of(workgroup: vec3<u32>) -> u32 {
    return params.first + workgroup.x + workgroup.y * params.across;
}

fn swapped(word: u32) -> u32 {
    return (word >> 24u) | ((word >> 8u) & 0xff00u) | ((word << 8u) & 0xff0000u) | (word << 24u);
}

// value / 2^shift to the nearest, ties to even, for a shift from 1 to 30 and a value below 2^31.
fn nearest(value: u32, shift: u32) -> u32 {
    return (value + ((1u << (shift - 1u)) - 1u) + ((value >> shift) & 1u)) >> shift;
}
