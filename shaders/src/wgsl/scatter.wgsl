// Row r of the source becomes row table[r] of the result. Rows that end within a word share it with their neighbours,
// hence the atomics; no two rows have a target in common.
@group(0) @binding(1) var<storage, read_write> result: array<atomic<u32>>;

fn put(at: u32, code: To) {
    //PUT
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let granule = granule_of(workgroup);
    if granule >= params.end {
        return;
    }
    let valid = held(granule);
    for (var at = lane; at < valid; at += 256u) {
        let element = granule * GRANULE + at;
        let made = convert(load(element));
        put(table[element / params.row] * params.row + element % params.row, made.code);
        count(made.loss);
    }
    settle(lane, segment(granule));
}
