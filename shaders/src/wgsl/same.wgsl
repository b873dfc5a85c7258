// The same bits.
alias To = From;

struct Coded {
    code: To,
    loss: u32,
}

fn convert(code: From) -> Coded {
    return Coded(code, NOTHING);
}
