// The same bits.
alias To = From;

fn convert(code: From) -> Coded {
    return Coded(code, NOTHING);
}
