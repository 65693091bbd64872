//! Choosing the next token: greedy or random, free or held to a grammar.

use std::cmp::Ordering;

use llama_cpp_2::json_schema_to_grammar;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::sampling::LlamaSampler;
use llama_cpp_2::token::LlamaToken;
use llama_cpp_2::token::data::LlamaTokenData;
use llama_cpp_2::token::data_array::LlamaTokenDataArray;

use crate::wire::{ApiError, Settings};

/// How many of the likeliest tokens are looked at before the whole vocabulary is.
///
/// Sorting or masking 150,000 tokens for each step costs more than a small model's step itself. For greedy choice
/// nothing is lost: the best allowed one among the likeliest is the best allowed of all. Random choice is, by this
/// number, also a top-k.
const LIKELIEST: usize = 64;

pub struct Picker {
    grammar: Option<LlamaSampler>,
    /// None is greedy.
    random: Option<LlamaSampler>,
}

impl Picker {
    /// Reads the settings; fails if the schema cannot be a grammar.
    pub fn new(model: &LlamaModel, settings: &Settings) -> Result<Self, ApiError> {
        let grammar = match &settings.schema {
            None => None,
            Some(schema) => {
                let refused = || {
                    ApiError::bad("invalid_json_schema", "the JSON schema cannot be made into a grammar by this server")
                };
                let grammar = json_schema_to_grammar(&schema.to_string()).map_err(|_| refused())?;
                Some(LlamaSampler::grammar(model, &grammar, "root").map_err(|_| refused())?)
            }
        };
        let random = (settings.temperature > 0.0).then(|| {
            let seed = settings.seed.unwrap_or_else(fresh_seed);
            let samplers = [
                LlamaSampler::top_p(settings.top_p, 1),
                LlamaSampler::temp(settings.temperature),
                LlamaSampler::dist(seed),
            ];
            LlamaSampler::chain(samplers, true)
        });
        Ok(Self { grammar, random })
    }

    pub fn is_constrained(&self) -> bool {
        self.grammar.is_some()
    }

    /// The next token; none if no token at all is allowed, which a broken model can bring about.
    pub fn pick(&mut self, logits: &[f32]) -> Option<LlamaToken> {
        if self.random.is_none() {
            // The common case: the likeliest token of all, and the grammar has nothing against it.
            let best = greedy(logits)?;
            if self.allows(best) {
                return Some(best);
            }
        }
        let mut likeliest = likeliest(all(logits), LIKELIEST);
        if self.random.is_some() {
            let chosen = self.choose(&likeliest)?;
            if self.allows(chosen) {
                return Some(chosen);
            }
        }
        self.keep_allowed(&mut likeliest);
        if likeliest.is_empty() {
            let mut every = all(logits).collect();
            self.keep_allowed(&mut every);
            likeliest = self::likeliest(every.into_iter(), LIKELIEST);
        }
        self.choose(&likeliest)
    }

    /// Tells the grammar which token was taken.
    pub fn accept(&mut self, token: LlamaToken) -> Result<(), ApiError> {
        match &mut self.grammar {
            None => Ok(()),
            Some(grammar) => {
                grammar.try_accept(token).map_err(|e| ApiError::internal(format!("the grammar refused its token: {e}")))
            }
        }
    }

    /// Whether the grammar allows this token next.
    pub fn allows(&mut self, token: LlamaToken) -> bool {
        let mut one = vec![LlamaTokenData::new(token, 0.0, 0.0)];
        self.keep_allowed(&mut one);
        !one.is_empty()
    }

    fn keep_allowed(&mut self, tokens: &mut Vec<LlamaTokenData>) {
        if let Some(grammar) = &mut self.grammar {
            let mut array = LlamaTokenDataArray::new(std::mem::take(tokens), false);
            array.apply_sampler(grammar);
            *tokens = array.data;
            tokens.retain(|t| t.logit() > f32::NEG_INFINITY);
        }
    }

    /// Chooses from tokens that are sorted by likelihood.
    fn choose(&mut self, sorted: &[LlamaTokenData]) -> Option<LlamaToken> {
        let first = sorted.first()?;
        let Some(random) = &mut self.random else { return Some(first.id()) };
        let mut array = LlamaTokenDataArray::new(sorted.to_vec(), true);
        array.apply_sampler(random);
        array.selected_token()
    }
}

fn all(logits: &[f32]) -> impl Iterator<Item = LlamaTokenData> + '_ {
    (0..).zip(logits).map(|(id, &logit)| LlamaTokenData::new(LlamaToken(id), logit, 0.0))
}

fn greedy(logits: &[f32]) -> Option<LlamaToken> {
    let mut best: Option<(i32, f32)> = None;
    for (id, &logit) in (0..).zip(logits) {
        // False for NaN, so that a broken model yields no token rather than a wrong one.
        if logit > best.map_or(f32::NEG_INFINITY, |(_, b)| b) {
            best = Some((id, logit));
        }
    }
    best.map(|(id, _)| LlamaToken(id))
}

/// The `n` likeliest tokens, the likeliest first; among equals the lower id, as in [`greedy`].
fn likeliest(tokens: impl Iterator<Item = LlamaTokenData>, n: usize) -> Vec<LlamaTokenData> {
    let order = |a: &LlamaTokenData, b: &LlamaTokenData| -> Ordering {
        b.logit().total_cmp(&a.logit()).then(a.id().0.cmp(&b.id().0))
    };
    let mut tokens: Vec<_> = tokens.filter(|t| !t.logit().is_nan()).collect();
    if tokens.len() > n {
        tokens.select_nth_unstable_by(n, order);
        tokens.truncate(n);
    }
    tokens.sort_unstable_by(order);
    tokens
}

fn fresh_seed() -> u32 {
    std::time::UNIX_EPOCH.elapsed().map_or(0, |t| t.subsec_nanos() ^ t.as_secs() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(tokens: &[LlamaTokenData]) -> Vec<i32> {
        tokens.iter().map(|t| t.id().0).collect()
    }

    #[test]
    fn the_likeliest_come_first_and_ties_go_to_the_lower_id() {
        let logits = [1.0, 5.0, f32::NAN, 5.0, -1.0, 3.0];
        assert_eq!(greedy(&logits), Some(LlamaToken(1)));
        assert_eq!(ids(&likeliest(all(&logits), 3)), [1, 3, 5]);
        assert_eq!(ids(&likeliest(all(&logits), 9)), [1, 3, 5, 0, 4]);
        assert_eq!(greedy(&[f32::NAN]), None);
    }

    #[test]
    fn random_choice_repeats_with_its_seed_and_honours_top_p() {
        let logits: Vec<f32> = (0..100).map(|i| (i % 7) as f32).collect();
        let picker = |seed, top_p| {
            let chain = [LlamaSampler::top_p(top_p, 1), LlamaSampler::temp(1.0), LlamaSampler::dist(seed)];
            Picker { grammar: None, random: Some(LlamaSampler::chain(chain, true)) }
        };
        let run = |seed, top_p| {
            let mut picker = picker(seed, top_p);
            (0..20).map(|_| picker.pick(&logits).map(|t| t.0)).collect::<Vec<_>>()
        };
        assert_eq!(run(1, 1.0), run(1, 1.0));
        assert_ne!(run(1, 1.0), run(2, 1.0));
        assert_eq!(run(3, 0.0), [Some(6); 20]);
    }
}
