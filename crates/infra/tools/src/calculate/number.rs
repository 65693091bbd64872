//! Exact numbers: fractions of whole numbers, which nothing has to be rounded to fit into.

use num::{BigInt, BigRational, BigUint, Integer as _, One as _, Signed as _, ToPrimitive as _, Zero as _};

/// Most digits before the point, and of a number as it is written.
pub(super) const MAX_DIGITS: usize = 60;
/// Most digits of a result that are all shown: a small model copies them all.
const MAX_SHOWN: usize = 40;
/// Digits of a result that is not shown to its end.
const SHOWN: i32 = 15;
/// Most bits above and below the line together. A year's interest by the day has 10,000.
const MAX_BITS: u64 = 1 << 16;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Number(BigRational);

#[derive(Debug)]
pub(super) enum Trouble {
    ByZero,
    /// More than [`MAX_DIGITS`] before the point.
    TooLarge,
    /// A fraction that takes too long to calculate with.
    TooFine,
}

type Calculated = Result<Number, Trouble>;

impl From<usize> for Number {
    fn from(n: usize) -> Self {
        Number(BigInt::from(n).into())
    }
}

impl Number {
    /// The number of these digits, of which one may be a point.
    pub(super) fn read(digits: &str) -> Option<Self> {
        let (whole, places) = digits.split_once('.').unwrap_or((digits, ""));
        if whole.len() + places.len() > MAX_DIGITS {
            return None;
        }
        let all = format!("{whole}{places}").parse::<BigInt>().ok()?;
        Some(Number(BigRational::new(all, ten_to(places.len() as u32))))
    }

    pub(super) fn bits(&self) -> u64 {
        self.0.numer().bits() + self.0.denom().bits()
    }

    pub(super) fn negated(self) -> Self {
        Number(-self.0)
    }

    pub(super) fn plus(&self, other: &Self) -> Calculated {
        fit(&self.0 + &other.0)
    }

    pub(super) fn times(&self, other: &Self) -> Calculated {
        fit(&self.0 * &other.0)
    }

    pub(super) fn over(&self, other: &Self) -> Calculated {
        if other.0.is_zero() { Err(Trouble::ByZero) } else { fit(&self.0 / &other.0) }
    }

    /// The remainder, with the sign of the divisor as in Python and in spreadsheets.
    pub(super) fn modulo(&self, other: &Self) -> Calculated {
        let times = Number(self.over(other)?.0.floor());
        self.plus(&times.times(other)?.negated())
    }

    pub(super) fn to_the(&self, power: i32) -> Calculated {
        if self.0.is_zero() && power < 0 {
            return Err(Trouble::ByZero);
        }
        // Before it is calculated: only 0 and 1 do not grow.
        if self.bits().saturating_sub(2) * u64::from(power.unsigned_abs()) > MAX_BITS {
            return Err(if self.0.is_integer() { Trouble::TooLarge } else { Trouble::TooFine });
        }
        fit(self.0.pow(power))
    }

    /// Halves go away from zero, as in bookkeeping.
    pub(super) fn rounded(&self, places: i32) -> Self {
        let unit = BigRational::from(ten_to(places.unsigned_abs()));
        Number(if places < 0 { (&self.0 / &unit).round() * unit } else { (&self.0 * &unit).round() / unit })
    }

    /// The whole number it is, if it is a small one.
    pub(super) fn whole(&self) -> Option<i32> {
        if self.0.is_integer() { self.0.numer().to_i32() } else { None }
    }

    /// How it is written, and whether that is all of it.
    pub(super) fn shown(&self) -> (String, bool) {
        if let Some((digits, places)) = self.decimals().filter(|(digits, _)| digits.len() <= MAX_SHOWN) {
            return (self.written(digits, places), true);
        }
        const PLACES: u32 = MAX_DIGITS as u32;
        let digits = (self.0.abs() * ten_to(PLACES)).round().to_integer().to_string().len() as i32;
        let short = self.rounded(PLACES as i32 - digits + SHOWN);
        // Rounding has left few enough.
        let (digits, places) = short.decimals().unwrap_or_default();
        (short.written(digits, places), false)
    }

    /// The digits without zeros at either end, and how many of them stand behind the point (below zero: how many zeros
    /// follow); nothing where they go on for ever, or for so long that nobody would read them.
    fn decimals(&self) -> Option<(String, i32)> {
        let (mut rest, mut places) = (self.0.denom().magnitude().clone(), [0u32; 2]);
        for (factor, count) in [2u32, 5].into_iter().zip(&mut places) {
            while *count <= 2 * MAX_DIGITS as u32 && rest.is_multiple_of(&factor.into()) {
                rest /= factor;
                *count += 1;
            }
        }
        if !rest.is_one() {
            return None;
        }
        let places = places[0].max(places[1]);
        let all = (self.0.abs() * ten_to(places)).to_integer().to_string();
        let digits = all.trim_end_matches('0');
        Some((digits.to_owned(), places as i32 - (all.len() - digits.len()) as i32))
    }

    fn written(&self, digits: String, places: i32) -> String {
        let sign = if self.0.is_negative() && !digits.is_empty() { "-" } else { "" };
        let Ok(places) = usize::try_from(places) else {
            return format!("{sign}{digits}{}", "0".repeat(places.unsigned_abs() as usize));
        };
        let digits = format!("{digits:0>width$}", width = places + 1);
        let (whole, behind) = digits.split_at(digits.len() - places);
        let point = if places == 0 { "" } else { "." };
        format!("{sign}{whole}{point}{behind}")
    }
}

fn ten_to(power: u32) -> BigInt {
    BigUint::from(10u32).pow(power).into()
}

fn fit(value: BigRational) -> Calculated {
    let (above, below) = (value.numer().bits(), value.denom().bits());
    // A number of 60 digits has 200 bits at the most; only close to that is it worth a division.
    if above > below + 196 && value.to_integer().magnitude() >= ten_to(MAX_DIGITS as u32).magnitude() {
        return Err(Trouble::TooLarge);
    }
    if above + below > MAX_BITS { Err(Trouble::TooFine) } else { Ok(Number(value)) }
}
