//! Finding by meaning: vectors, and what likeness is worth beside words.
//!
//! Vectors of one model mean nothing to another, also where they are of one length: whoever keeps vectors keeps with
//! each the [`Space`] that it lies in, and compares only what lies in the same.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::MemoryId;
use crate::text::plural;

/// How much meaning counts beside words, of 1. Measured with all-MiniLM-L6-v2 on long conversations; with equal weights
/// less is found than by words alone.
pub const WEIGHT: f64 = 0.3;

/// How much the vector of what stands beside an item counts in its own.
pub const BESIDE: f32 = 0.3;

/// The best of each kind that are weighed against each other.
pub const POOL: u32 = 100;

/// Items whose vectors are compared by all of their numbers, of those that are nearest by the signs of them. Where there
/// are no more, the result is exact.
pub const CANDIDATES: usize = 400;

/// What is less alike is not found by its meaning alone.
pub const LEAST: f64 = 0.2;

/// What the vectors of an embedder are comparable by.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Space {
    /// The model's name, as its provider calls it.
    pub model: String,
    /// How many numbers a vector has.
    pub dimension: usize,
}

impl Space {
    /// Why a question whose vector lies elsewhere is not compared with what lies here.
    pub fn differs_from(&self, asked: &Space) -> String {
        format!(
            "the items have vectors of {} ({}), and the question would have one of {} ({})",
            self.model,
            plural(self.dimension as u64, "number"),
            asked.model,
            asked.dimension
        )
    }
}

/// What a question means.
#[derive(Debug, Clone, PartialEq)]
pub struct Meaning {
    /// Where its vector lies.
    pub space: Space,
    /// A vector of length 1.
    pub vector: Vec<f32>,
}

/// The vector made as long as 1; none where it has no direction (nothing but zeros), or is no vector of numbers.
pub fn unit(mut vector: Vec<f32>) -> Option<Vec<f32>> {
    // In f64, so that no square of a large number is lost.
    let length = vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt();
    if !(length.is_finite() && length > 0.0) {
        return None;
    }
    vector.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
    Some(vector)
}

/// The vector of an item among those beside it.
pub fn in_context<'a>(own: &[f32], beside: impl IntoIterator<Item = &'a [f32]>) -> Vec<f32> {
    let mut sum = own.to_vec();
    for other in beside {
        sum.iter_mut().zip(other).for_each(|(sum, x)| *sum += BESIDE * x);
    }
    // Two opposite ones cannot outweigh it.
    unit(sum).unwrap_or_else(|| own.to_vec())
}

/// One bit for each number: whether it is above zero. A whole number of bytes.
pub fn signs(vector: &[f32]) -> Vec<u8> {
    let byte = |eight: &[f32]| eight.iter().enumerate().fold(0, |byte, (bit, x)| byte | u8::from(*x > 0.0) << bit);
    vector.chunks(8).map(byte).collect()
}

/// A vector as it is stored: each number in four bytes, the lowest first.
pub fn bytes(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// What is stored of a vector; none where it has not so many numbers.
pub fn numbers(bytes: &[u8], dimension: usize) -> Option<Vec<f32>> {
    let (numbers, rest) = bytes.as_chunks::<4>();
    let whole = rest.is_empty() && numbers.len() == dimension;
    whole.then(|| numbers.iter().map(|four| f32::from_le_bytes(*four)).collect())
}

/// How alike two vectors of length 1 are: their cosine.
pub fn likeness(a: &[f32], b: &[f32]) -> f64 {
    // In lanes, so that the compiler adds several at once.
    let (a, b) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    let mut lanes = [0f32; 8];
    for (a, b) in a.0.iter().zip(b.0) {
        lanes.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum += a * b);
    }
    let rest: f32 = a.1.iter().zip(b.1).map(|(a, b)| a * b).sum();
    f64::from(lanes.iter().sum::<f32>() + rest)
}

/// Items with the score that they have by their words and by their meaning, each list with its best first: the best
/// first. Each score counts by its place between the best and the worst of its own list.
pub fn weighed(words: &[(MemoryId, f64)], meaning: &[(MemoryId, f64)]) -> Vec<(MemoryId, f64)> {
    let mut weighed: HashMap<MemoryId, f64> = HashMap::new();
    for (list, weight) in [(words, 1.0 - WEIGHT), (meaning, WEIGHT)] {
        let list = &list[..list.len().min(POOL as usize)];
        let (Some((_, best)), Some((_, worst))) = (list.first(), list.last()) else { continue };
        for (id, score) in list {
            let scaled = if best > worst { (score - worst) / (best - worst) } else { 1.0 };
            *weighed.entry(*id).or_default() += weight * scaled;
        }
    }
    let mut all: Vec<_> = weighed.into_iter().collect();
    // The newer one first, where there is no other difference.
    all.sort_by(|(a_id, a), (b_id, b)| b.total_cmp(a).then(b_id.cmp(a_id)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_direction_is_kept_and_nothing_else_has_one() {
        assert_eq!(unit(vec![3.0, -4.0]), Some(vec![0.6, -0.8]));
        assert_eq!(unit(vec![f32::MAX, 0.0]), Some(vec![1.0, 0.0]));
        for none in [vec![], vec![0.0, 0.0], vec![f32::NAN, 1.0], vec![f32::INFINITY, 1.0]] {
            assert_eq!(unit(none), None);
        }
    }

    #[test]
    fn a_vector_is_stored_whole_and_compared_by_any_length() {
        for dimension in [1, 7, 8, 21] {
            let vector = unit((0..dimension).map(|i| i as f32 - 2.5).collect()).expect("has a direction");
            assert_eq!(numbers(&bytes(&vector), dimension), Some(vector.clone()));
            assert_eq!(numbers(&bytes(&vector), dimension + 1), None);
            assert!((likeness(&vector, &vector) - 1.0).abs() < 1e-6);
            assert_eq!(signs(&vector).len(), dimension.div_ceil(8));
        }
        assert_eq!(signs(&[1.0, -1.0, 0.0, 2.0]), [0b1001]);
        let turned = in_context(&[1.0, 0.0], [&[0.0, 1.0][..], &[0.0, 1.0][..]]);
        assert!((turned[1] / turned[0] - 0.6).abs() < 1e-6, "{turned:?}");
        assert_eq!(in_context(&[1.0], [&[-1.0][..]]), [1.0]);
    }

    #[test]
    fn words_count_for_more_and_meaning_decides_between_equals() {
        let id = MemoryId;
        let words = [(id(1), 9.0), (id(2), 9.0), (id(3), 1.0)];
        let meaning = [(id(4), 0.9), (id(2), 0.8), (id(3), 0.1)];
        let order: Vec<_> = weighed(&words, &meaning).into_iter().map(|(id, _)| id.0).collect();
        assert_eq!(order, [2, 1, 4, 3]);
        assert_eq!(weighed(&[(id(1), 3.0)], &[]), [(id(1), 0.7)]);
        assert_eq!(weighed(&[], &[]), []);
    }
}
