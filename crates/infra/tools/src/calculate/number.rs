//! Exact decimals, as long as they fit.
//!
//! `Decimal` has 28 digits and rounds silently where a result needs more. So each step is first
//! tried exactly, on mantissas, and what had to be rounded carries how far off it may be.

use rust_decimal::prelude::ToPrimitive;
use rust_decimal::{Decimal, RoundingStrategy};

/// A number, and how far off it may be: 0 if it is exactly what was asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Number {
    pub(super) value: Decimal,
    error: f64,
}

/// Why two numbers have no result.
#[derive(Debug)]
pub(super) enum Trouble {
    ByZero,
    /// It may be zero or not: its digits are lost.
    ByNearlyZero,
    TooLarge,
    /// A remainder of what is not known exactly may be anything.
    NotExact,
}

type Outcome = Result<Number, Trouble>;

impl From<Decimal> for Number {
    fn from(value: Decimal) -> Self {
        Number { value, error: 0.0 }
    }
}

impl Number {
    pub(super) const ZERO: Number = Number { value: Decimal::ZERO, error: 0.0 };
    const ONE: Number = Number { value: Decimal::ONE, error: 0.0 };

    pub(super) fn is_exact(self) -> bool {
        self.error == 0.0
    }

    pub(super) fn negated(self) -> Self {
        Number { value: -self.value, ..self }
    }

    pub(super) fn plus(self, other: Self) -> Outcome {
        let (a, b) = (self.value, other.value);
        let exact = aligned(a, b).and_then(|(a, b, scale)| fit(a.checked_add(b)?, scale));
        either(exact, || a.checked_add(b), self.error + other.error)
    }

    pub(super) fn times(self, other: Self) -> Outcome {
        let (a, b) = (self.value.normalize(), other.value.normalize());
        let exact = a.mantissa().checked_mul(b.mantissa()).and_then(|product| fit(product, a.scale() + b.scale()));
        let error = size(a) * other.error + size(b) * self.error + self.error * other.error;
        either(exact, || a.checked_mul(b), error)
    }

    pub(super) fn over(self, other: Self) -> Outcome {
        let divisor = other.neat();
        // What it is at the least.
        let least = size(divisor) - 2.0 * other.error;
        if divisor.is_zero() && other.is_exact() {
            return Err(Trouble::ByZero);
        }
        if divisor.is_zero() || least <= 0.0 {
            return Err(Trouble::ByNearlyZero);
        }
        let quotient = self.value.checked_div(divisor).ok_or(Trouble::TooLarge)?;
        let back = Number::from(quotient).times(divisor.into());
        let is_whole = back.is_ok_and(|back| back.is_exact() && back.value == self.value);
        let error = (self.error + size(quotient) * 2.0 * other.error) / least;
        either(is_whole.then_some(quotient), || Some(quotient), error)
    }

    /// The remainder, with the sign of the divisor as in Python and in spreadsheets.
    pub(super) fn modulo(self, other: Self) -> Outcome {
        if !self.is_exact() || !other.is_exact() {
            return Err(Trouble::NotExact);
        }
        if other.value.is_zero() {
            return Err(Trouble::ByZero);
        }
        let (a, b, scale) = aligned(self.value, other.value).ok_or(Trouble::TooLarge)?;
        let rest = a % b;
        let rest = if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest };
        fit(rest, scale).map(Number::from).ok_or(Trouble::TooLarge)
    }

    pub(super) fn to_the(self, power: i32) -> Outcome {
        let (mut result, mut rest) = (Self::ONE, power.unsigned_abs());
        let mut factor = if power < 0 { Self::ONE.over(self)? } else { self };
        while rest > 0 {
            if rest % 2 == 1 {
                result = result.times(factor)?;
            }
            rest /= 2;
            if rest > 0 {
                factor = factor.times(factor)?;
            }
        }
        Ok(result)
    }

    /// Halves go away from zero, as in bookkeeping. A rounded number is exact, being what was asked,
    /// unless it was not known to so many places.
    pub(super) fn rounded(self, places: u32) -> Self {
        let value = self.neat().round_dp_with_strategy(places, RoundingStrategy::MidpointAwayFromZero);
        let is_known = self.is_exact() || i64::from(places) < i64::from(self.known_places());
        Number { value, error: if is_known { 0.0 } else { 2.0 * self.error } }
    }

    /// The whole number it is, if it is a small one.
    pub(super) fn whole(self) -> Option<i32> {
        let value = self.neat().normalize();
        if value.scale() == 0 { i32::try_from(value.mantissa()).ok() } else { None }
    }

    /// Whether nothing is left of it but an error that matters.
    pub(super) fn is_lost(self) -> bool {
        !self.is_exact() && self.known_places() < 15 && to_places(self.value, self.known_places()).is_zero()
    }

    /// At most 15 digits of what is not exact: nobody needs more, and a small model copies them all.
    pub(super) fn shown(self) -> String {
        let mut value = self.value;
        if !self.is_exact() {
            value = to_places(value, self.known_places());
            let digits = value.mantissa().unsigned_abs().checked_ilog10().map_or(0, |log| log + 1);
            value = value.round_dp(value.scale().saturating_sub(digits.saturating_sub(15)));
        }
        value.normalize().to_string()
    }

    /// How many decimal places are right for certain, with some to spare; below zero if not even
    /// those before the point are.
    fn known_places(self) -> i32 {
        const SPARE: i32 = 3;
        let log = if self.error.is_nan() { f64::INFINITY } else { self.error.log10() };
        -(log.ceil().clamp(-100.0, 100.0) as i32) - SPARE
    }

    /// The shorter number that it may as well be: 0.125 / 3 * 3 is 0.125 again and not slightly less.
    fn neat(self) -> Decimal {
        let neat = if self.is_exact() { self.value } else { to_places(self.value, self.known_places()) };
        match neat.checked_sub(self.value) {
            Some(difference) if size(difference) <= self.error => neat,
            _ => self.value,
        }
    }
}

/// Rounded to so many decimal places; below zero, to tens, hundreds and so on.
fn to_places(value: Decimal, places: i32) -> Decimal {
    match u32::try_from(places) {
        Ok(places) => value.round_dp(places),
        Err(_) => {
            let Some(unit) = 10i128.checked_pow(places.unsigned_abs()).and_then(|unit| fit(unit, 0)) else {
                return Decimal::ZERO;
            };
            value.checked_div(unit).and_then(|units| units.round().checked_mul(unit)).unwrap_or(value)
        }
    }
}

/// `exact` if there is one, else `rounded`. `error` is what the operands bring along.
fn either(exact: Option<Decimal>, rounded: impl FnOnce() -> Option<Decimal>, error: f64) -> Outcome {
    // Never so small that a product of them would be 0, which says exact.
    let error = if error > 0.0 { error.max(1e-100) } else { error };
    if let Some(value) = exact {
        return Ok(Number { value, error });
    }
    let value = rounded().ok_or(Trouble::TooLarge)?;
    // 28 digits or 28 decimal places, whichever is less.
    let last_place = f64::max(1e-28, size(value) * 2e-28);
    Ok(Number { value, error: error + last_place })
}

fn size(value: Decimal) -> f64 {
    value.to_f64().map_or(f64::INFINITY, f64::abs)
}

/// Both mantissas at one scale.
fn aligned(a: Decimal, b: Decimal) -> Option<(i128, i128, u32)> {
    let (a, b) = (a.normalize(), b.normalize());
    let scale = a.scale().max(b.scale());
    let at_scale = |value: Decimal| value.mantissa().checked_mul(10i128.checked_pow(scale - value.scale())?);
    Some((at_scale(a)?, at_scale(b)?, scale))
}

/// The decimal of that mantissa and scale, if there is one.
fn fit(mut mantissa: i128, mut scale: u32) -> Option<Decimal> {
    while scale > 0 && mantissa % 10 == 0 {
        mantissa /= 10;
        scale -= 1;
    }
    Decimal::try_from_i128_with_scale(mantissa, scale).ok()
}
