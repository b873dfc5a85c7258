// The code of one element; nothing behind the last one.
fn one(element: u32, inside: bool) -> To {
    if !inside {
        return To();
    }
    let made = convert(load(place(element)));
    count(made.loss);
    return made.code;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let granule = granule_of(workgroup);
    if granule >= params.end {
        return;
    }
    let valid = held(granule);
    for (var at = lane; at < GRANULE / GROUP; at += 256u) {
        let within = at * GROUP;
        if within >= valid {
            break;
        }
        let first = granule * GRANULE + within;
        //CODES
        //STORE
    }
    settle(lane, segment(granule));
}
