//! Arithmetic of polynomials over two elements, modulo a CRC polynomial, in its reflected form: bit 31 is x^0.

/// `x^(8·d·256^k) mod P` for every digit `d` at every place `k`: what a CRC is multiplied by when that many bytes
/// follow.
pub(super) struct Powers {
    polynomial: u32,
    of: [[u32; 256]; 8],
}

const ONE: u32 = 1 << 31;

impl Powers {
    pub(super) const fn of(polynomial: u32) -> Powers {
        let mut of = [[ONE; 256]; 8];
        let mut base = ONE >> 8; // x^8: one byte
        let mut place = 0;
        while place < 8 {
            let mut digit = 1;
            while digit < 256 {
                of[place][digit] = multiply(polynomial, of[place][digit - 1], base);
                digit += 1;
            }
            base = multiply(polynomial, of[place][255], base);
            place += 1;
        }
        Powers { polynomial, of }
    }

    /// `crc · x^(8·bytes)`: the part `crc` plays in the checksum once `bytes` more bytes have followed.
    pub(super) fn advance(&self, crc: u32, bytes: u64) -> u32 {
        let digits = self.of.iter().zip(bytes.to_le_bytes()).filter(|&(_, digit)| digit != 0);
        digits.fold(crc, |crc, (powers, digit)| multiply(self.polynomial, crc, powers[usize::from(digit)]))
    }
}

/// `a · b mod P`, branch-free, a bit of `a` at a time.
const fn multiply(polynomial: u32, a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = 32;
    while bit > 0 {
        bit -= 1;
        product ^= b & (a >> bit & 1).wrapping_neg();
        b = (b >> 1) ^ (polynomial & (b & 1).wrapping_neg());
    }
    product
}
