var<workgroup> losses: array<atomic<u32>, 4>;

fn count(loss: u32) {
    if loss != NOTHING {
        atomicAdd(&losses[loss], 1u);
    }
}

// Adds what the workgroup counted to what its segment lost.
fn settle(lane: u32, into: u32) {
    workgroupBarrier();
    if lane < 4u {
        let found = atomicLoad(&losses[lane]);
        if found != 0u {
            atomicAdd(&tally[4u * into + lane], found);
        }
    }
}
