//! Expected results of an instruction, and their comparison with a register.

/// Expected content of a vector register.
#[derive(Clone, Debug)]
pub(crate) enum Dst {
    /// Unchanged.
    Unchanged,
    /// Anything: the documents leave it open.
    Any,
    /// Exactly these bits.
    B32(u32),
    B64(u64),
    B128([u32; 4]),
    /// The low half has exactly these bits; the high half is ignored.
    Low16(u16),
    /// A float; all quiet NaNs are equal. `F16` requires a high half of zeros, `F16Kept` the old one.
    F32(f32),
    F64(f64),
    F16(u16),
    F16Kept(u16),
    F16Low(u16),
    /// In the high half; the low half is unchanged.
    F16High(u16),
    /// Two halves.
    Halves(u32),
    /// Two floats.
    Floats([f32; 2]),
    /// One of the two.
    Either(Box<Dst>, Box<Dst>),
    /// Within this many units in the last place of the exact value.
    Near32(f64, f64),
    Near16(f64, f64),
    /// Within this relative error of the exact value.
    Near64(f64, f64),
    /// Within this absolute error of the exact value.
    Within32(f64, f64),
    Within16(f64, f64),
}

/// Expected effect of an instruction in a lane. `None` means unchanged.
#[derive(Clone, Debug)]
pub(crate) struct Out {
    pub(crate) dst: Dst,
    /// The lane's bit of VCC, and of s[24:25] as a mask.
    pub(crate) vcc: Option<bool>,
    pub(crate) mask: Option<bool>,
    /// The lane's bit of EXEC.
    pub(crate) exec_bit: Option<bool>,
    /// s[24:25], or only s24.
    pub(crate) sd: Option<u64>,
    pub(crate) sd32: Option<u32>,
    pub(crate) scc: Option<bool>,
    pub(crate) exec: Option<u64>,
    pub(crate) whole_vcc: Option<u64>,
    /// Operand registers that are written.
    pub(crate) a: Option<u32>,
    /// True if the result is written regardless of EXEC.
    pub(crate) always: bool,
}

impl From<Dst> for Out {
    fn from(dst: Dst) -> Self {
        Self {
            dst,
            vcc: None,
            mask: None,
            exec_bit: None,
            sd: None,
            sd32: None,
            scc: None,
            exec: None,
            whole_vcc: None,
            a: None,
            always: false,
        }
    }
}

impl From<u32> for Out {
    fn from(bits: u32) -> Self {
        Dst::B32(bits).into()
    }
}

impl From<u64> for Out {
    fn from(bits: u64) -> Self {
        Dst::B64(bits).into()
    }
}

impl From<f32> for Out {
    fn from(value: f32) -> Self {
        Dst::F32(value).into()
    }
}

impl From<f64> for Out {
    fn from(value: f64) -> Self {
        Dst::F64(value).into()
    }
}

impl Out {
    pub(crate) fn kept() -> Self {
        Dst::Unchanged.into()
    }
    pub(crate) fn vcc(mut self, bit: bool) -> Self {
        self.vcc = Some(bit);
        self
    }
    pub(crate) fn mask(mut self, bit: bool) -> Self {
        self.mask = Some(bit);
        self
    }
    pub(crate) fn exec_bit(mut self, bit: bool) -> Self {
        self.exec_bit = Some(bit);
        self
    }
}

/// Returns true if a register with old content `old` has the expected content.
pub(crate) fn matches(want: &Dst, got: [u32; 4], old: [u32; 4]) -> bool {
    let rest = |from: usize| got[from..] == old[from..];
    let (low, high) = (got[0] as u16, (got[0] >> 16) as u16);
    let (f32_got, f64_got) =
        (f32::from_bits(got[0]), f64::from_bits(u64::from(got[1]) << 32 | u64::from(got[0])));
    let f16_got = f64::from(half::f16::from_bits(low).to_f32());
    let is_nan = |bits: u16| half::f16::from_bits(bits).is_nan();
    // In IEEE mode no operation returns a signalling NaN.
    let same16 = |got: u16, want: u16| got == want || (is_nan(got) && got & 0x200 != 0 && is_nan(want));
    let f16_same = |want: u16| same16(low, want);
    let quiet32 = f32_got.is_nan() && got[0] & 0x0040_0000 != 0;
    let quiet64 = f64_got.is_nan() && got[1] & 0x0008_0000 != 0;
    let f32_same = |want: f32| f32_got.to_bits() == want.to_bits() || (quiet32 && want.is_nan());
    match want {
        Dst::Unchanged => rest(0),
        Dst::Any => true,
        Dst::B32(bits) => got[0] == *bits && rest(1),
        Dst::B64(bits) => f64_got.to_bits() == *bits && rest(2),
        Dst::B128(words) => got == *words,
        Dst::Low16(bits) => low == *bits && rest(1),
        Dst::F32(value) => f32_same(*value) && rest(1),
        Dst::F64(value) => (f64_got.to_bits() == value.to_bits() || (quiet64 && value.is_nan())) && rest(2),
        Dst::F16(bits) => f16_same(*bits) && high == 0 && rest(1),
        Dst::F16Kept(bits) => f16_same(*bits) && high == (old[0] >> 16) as u16 && rest(1),
        Dst::F16Low(bits) => f16_same(*bits) && rest(1),
        Dst::F16High(bits) => same16(high, *bits) && low == old[0] as u16 && rest(1),
        Dst::Halves(bits) => f16_same(*bits as u16) && same16(high, (bits >> 16) as u16) && rest(1),
        Dst::Floats(values) => {
            let same = |bits: u32, want: f32| {
                bits == want.to_bits() || (f32::from_bits(bits).is_nan() && want.is_nan())
            };
            same(got[0], values[0]) && same(got[1], values[1]) && rest(2)
        }
        Dst::Either(one, other) => matches(one, got, old) || matches(other, got, old),
        Dst::Near32(exact, ulps) => {
            near(f64::from(f32_got), *exact, *ulps, 24, -126, f64::from(f32::MAX)) && rest(1)
        }
        Dst::Near16(exact, ulps) => near(f16_got, *exact, *ulps, 11, -14, 65504.0) && rest(1),
        Dst::Near64(exact, relative) => {
            let same = f64_got == *exact || (quiet64 && exact.is_nan());
            (same || ((f64_got - exact) / exact).abs() <= *relative) && rest(2)
        }
        Dst::Within32(exact, error) => (f64::from(f32_got) - exact).abs() <= *error && rest(1),
        Dst::Within16(exact, error) => (f16_got - exact).abs() <= *error && rest(1),
    }
}

/// Returns true if `got` is within `ulps` of `exact` in a format of `precision` bits with smallest normal
/// exponent `smallest`; results above `largest` may be infinite, and denormal ones may be flushed.
fn near(got: f64, exact: f64, ulps: f64, precision: i32, smallest: i32, largest: f64) -> bool {
    if exact.is_nan() || got.is_nan() {
        return exact.is_nan() && got.is_nan();
    }
    if exact.is_infinite() || exact == 0.0 {
        return got == exact;
    }
    let exponent = (exact.abs().log2().floor() as i32).max(smallest);
    let unit = 2f64.powi(exponent - precision + 1);
    let flushed = got == 0.0 && exact.abs() < 2f64.powi(smallest) * 1.0001;
    flushed || (got - exact).abs() <= ulps * unit || (got.is_infinite() && exact.abs() + unit > largest)
}
