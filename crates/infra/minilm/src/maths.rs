//! What the layers compute with. Written so that the compiler makes several numbers of each instruction, hence no calls
//! of the C library's `expf` and `erff`.

/// `out` becomes `rows` x `weights` (each row of `weights` makes one number of each row of `out`) + `bias`.
pub(crate) fn linear(rows: &[f32], weights: &[f32], bias: &[f32], out: &mut Vec<f32>) {
    let outputs = bias.len();
    let inputs = weights.len() / outputs;
    let count = rows.len() / inputs;
    assert!(count * inputs == rows.len() && inputs * outputs == weights.len(), "tables of other shapes");
    out.clear();
    (0..count).for_each(|_| out.extend_from_slice(bias));
    // SAFETY: `rows` has count x inputs numbers, `weights` outputs x inputs, read across, and `out` count x outputs.
    unsafe {
        matrixmultiply::sgemm(
            count,
            inputs,
            outputs,
            1.0,
            rows.as_ptr(),
            inputs as isize,
            1,
            weights.as_ptr(),
            1,
            inputs as isize,
            1.0,
            out.as_mut_ptr(),
            outputs as isize,
            1,
        );
    }
}

/// A window of a table: `columns` numbers of each of `rows` rows, which are `stride` apart.
#[derive(Clone, Copy)]
pub(crate) struct Window<'a> {
    pub table: &'a [f32],
    pub rows: usize,
    pub columns: usize,
    pub stride: usize,
}

impl Window<'_> {
    fn is_inside(&self) -> bool {
        self.rows == 0 || (self.rows - 1) * self.stride + self.columns <= self.table.len()
    }
}

/// `out` (rows of `left` x rows of `right`) becomes how much each row of the one is like each of the other, times `scale`.
pub(crate) fn likeness(left: Window<'_>, right: Window<'_>, scale: f32, out: &mut [f32]) {
    assert!(left.is_inside() && right.is_inside() && left.columns == right.columns);
    assert!(out.len() == left.rows * right.rows);
    // SAFETY: both windows lie inside their tables, and `out` is as large as their product.
    unsafe {
        matrixmultiply::sgemm(
            left.rows,
            left.columns,
            right.rows,
            scale,
            left.table.as_ptr(),
            left.stride as isize,
            1,
            right.table.as_ptr(),
            1,
            right.stride as isize,
            0.0,
            out.as_mut_ptr(),
            right.rows as isize,
            1,
        );
    }
}

/// Each row of `out`, which are `stride` apart, becomes the sum of the rows of `values`, weighed by a row of `shares`.
pub(crate) fn weigh(shares: &[f32], values: Window<'_>, out: &mut [f32], stride: usize) {
    let count = shares.len() / values.rows;
    assert!(values.is_inside() && count * values.rows == shares.len());
    assert!(count == 0 || (count - 1) * stride + values.columns <= out.len());
    // SAFETY: the window lies inside its table, `shares` is count x rows of it, and `out` holds count rows.
    unsafe {
        matrixmultiply::sgemm(
            count,
            values.rows,
            values.columns,
            1.0,
            shares.as_ptr(),
            values.rows as isize,
            1,
            values.table.as_ptr(),
            values.stride as isize,
            1,
            0.0,
            out.as_mut_ptr(),
            stride as isize,
            1,
        );
    }
}

/// Makes shares of a row: positive, and 1 together.
pub(crate) fn softmax(row: &mut [f32]) {
    let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    row.iter_mut().for_each(|x| *x = exp(*x - most));
    let total: f32 = row.iter().sum();
    row.iter_mut().for_each(|x| *x /= total);
}

/// x times the share of a normal distribution below x.
pub(crate) fn gelu(numbers: &mut [f32]) {
    for x in numbers {
        // The error function, to 1.5e-7 (Abramowitz and Stegun, 7.1.26).
        let z = x.abs() * std::f32::consts::FRAC_1_SQRT_2;
        let t = 1.0 / (1.0 + 0.327_591_1 * z);
        let terms = ((((1.061_405_4 * t - 1.453_152_1) * t) + 1.421_413_8) * t - 0.284_496_72) * t + 0.254_829_6;
        let erf = 1.0 - terms * t * exp(-z * z);
        *x *= 0.5 * (1.0 + erf.copysign(*x));
    }
}

/// Each row of the width of `scale` becomes one of mean 0 and variance 1, times `scale`, plus `shift`.
pub(crate) fn normalise(rows: &mut [f32], scale: &[f32], shift: &[f32]) {
    for row in rows.chunks_exact_mut(scale.len()) {
        let width = scale.len() as f32;
        let mean = row.iter().sum::<f32>() / width;
        let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>() / width;
        let by = 1.0 / (variance + 1e-12).sqrt();
        for ((x, scale), shift) in row.iter_mut().zip(scale).zip(shift) {
            *x = (*x - mean) * by * scale + shift;
        }
    }
}

/// e to the power of x, to seven digits; x at most 0.
fn exp(x: f32) -> f32 {
    // Adding this leaves the nearest whole number in the last bits.
    const SHIFT: f32 = 12_582_912.0;
    let x = x.max(-87.0);
    let shifted = x * std::f32::consts::LOG2_E + SHIFT;
    let whole = shifted - SHIFT;
    let rest = x - whole * 0.693_359_4 + whole * 2.121_944_4e-4;
    let mut power = 1.987_569_1e-4;
    for term in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        power = power * rest + term;
    }
    let power = power * rest * rest + rest + 1.0;
    let exponent = shifted.to_bits().wrapping_sub(SHIFT.to_bits()).wrapping_add(127) << 23;
    power * f32::from_bits(exponent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_are_those_of_the_library() {
        for step in 0..=8_600 {
            let x = -(step as f32) / 100.0;
            assert!((exp(x) / x.exp() - 1.0).abs() < 3e-7, "e to the power of {x}");
        }
        assert!(exp(-1e9) < 1e-37);
    }

    #[test]
    fn gelu_of_known_numbers() {
        // x * Phi(x), from a table of the normal distribution.
        let known = [(0.0, 0.0), (1.0, 0.841_344_7), (-1.0, -0.158_655_3), (2.0, 1.954_499_7), (-3.0, -0.004_049_7)];
        for (x, expected) in known {
            let mut got = [x];
            gelu(&mut got);
            assert!((got[0] - expected).abs() < 1e-6, "{x}: {} and not {expected}", got[0]);
        }
    }

    #[test]
    fn tables_are_multiplied_across() {
        let mut out = Vec::new();
        // Two rows of three, two weights of three, a bias.
        linear(&[1.0, 2.0, 3.0, 0.0, 1.0, 0.0], &[1.0, 0.0, 1.0, 0.5, 0.5, 0.5], &[10.0, 0.0], &mut out);
        assert_eq!(out, [14.0, 3.0, 10.0, 0.5]);
        let mut shares = [0.0, 0.0, 2.0_f32.ln()];
        softmax(&mut shares);
        assert!(shares.iter().zip([0.25, 0.25, 0.5]).all(|(got, expected)| (got - expected).abs() < 1e-6));
        let mut rows = [1.0, 3.0];
        normalise(&mut rows, &[2.0, 2.0], &[0.0, 1.0]);
        assert!((rows[0] + 2.0).abs() < 1e-5 && (rows[1] - 3.0).abs() < 1e-5, "{rows:?}");
    }
}
