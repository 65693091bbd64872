//! What the model has read: the live token sequence and a few parked ones, so that a prompt that goes on from an
//! earlier one is read only from where they part.
//!
//! **A reused prefix gives bit for bit the result of a fresh one.** A matrix product over one row rounds
//! differently from one over many (seen with Qwen2.5: 0.3 in the logits), so a prefix is only equal to a fresh
//! reading if it was computed in the same batches. Prompts are therefore read in chunks that begin at multiples of
//! [`CHUNK`], only whole chunks are kept, and tokens that the model generated (one by one) are read again when they
//! come back in a prompt.

use std::collections::VecDeque;

use llama_cpp_2::context::LlamaContext;
use llama_cpp_2::context::session::LlamaStateSeqFlags;
use llama_cpp_2::context::session::SeqState;
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::token::LlamaToken;

use crate::wire::ApiError;

/// Tokens that are read together: 32 at 60 a second, 64 at 87, 128 at 105 (Qwen2.5-Coder-1.5B, two cores with AVX-512),
/// for each chunk unpacks all weights once. Larger ones cost more to read again than they save.
pub const CHUNK: usize = 128;

/// A sequence that would lose so many tokens is parked first: reading them again takes seconds, a copy milliseconds.
const WORTH_PARKING: usize = CHUNK;

const MOST_PARKED: usize = 4;

pub struct Memory<'model> {
    ctx: LlamaContext<'model>,
    batch: LlamaBatch<'static>,
    /// Whole chunks of prompt tokens in the context, which may hold more behind them.
    live: Vec<LlamaToken>,
    /// The one parked last is at the back.
    parked: VecDeque<Parked>,
}

struct Parked {
    tokens: Vec<LlamaToken>,
    state: SeqState,
}

impl<'model> Memory<'model> {
    /// An empty memory over a context with one sequence.
    pub fn new(ctx: LlamaContext<'model>) -> Self {
        Self { ctx, batch: LlamaBatch::new(CHUNK, 1), live: Vec::new(), parked: VecDeque::new() }
    }

    pub fn n_ctx(&self) -> usize {
        self.ctx.n_ctx() as usize
    }

    /// What the model says about the token after the last one read.
    pub fn logits(&self) -> &[f32] {
        self.ctx.get_logits_ith(self.batch.n_tokens() - 1)
    }

    /// Makes ready for `prompt` by keeping or restoring the longest known prefix; returns its length.
    pub fn recall(&mut self, prompt: &[LlamaToken]) -> usize {
        let here = whole_prefix(&self.live, prompt);
        let there = (0..self.parked.len())
            .map(|i| (whole_prefix(&self.parked[i].tokens, prompt), i))
            .max()
            .filter(|&(length, _)| length > here);
        let lost = self.live.len() - if there.is_none() { here } else { 0 };
        let found = there.and_then(|(_, i)| self.parked.remove(i));
        if lost >= WORTH_PARKING {
            self.park();
        }
        if let Some(found) = found {
            self.restore(found, prompt);
        }
        let kept = whole_prefix(&self.live, prompt);
        self.cut(kept);
        self.live.len()
    }

    /// Reads the prompt on from what [`Self::recall`] kept. Returns whether it got to the end: `go_on` is asked
    /// between chunks.
    pub fn read(&mut self, prompt: &[LlamaToken], go_on: impl Fn() -> bool) -> Result<bool, ApiError> {
        let kept = self.live.len();
        for (i, chunk) in prompt[kept..].chunks(CHUNK).enumerate() {
            if !go_on() {
                return Ok(false);
            }
            let start = kept + i * CHUNK;
            self.decode(chunk, start, start + chunk.len() == prompt.len())?;
            if chunk.len() == CHUNK {
                self.live.extend_from_slice(chunk);
            }
        }
        Ok(true)
    }

    pub fn step(&mut self, token: LlamaToken, position: usize) -> Result<(), ApiError> {
        self.decode(&[token], position, true)
    }

    fn decode(&mut self, tokens: &[LlamaToken], start: usize, wants_logits: bool) -> Result<(), ApiError> {
        self.batch.clear();
        for (i, &token) in tokens.iter().enumerate() {
            let last = i + 1 == tokens.len();
            self.batch
                .add(token, (start + i) as i32, &[0], wants_logits && last)
                .map_err(|e| ApiError::internal(format!("batch: {e}")))?;
        }
        self.ctx.decode(&mut self.batch).map_err(|e| {
            self.forget();
            ApiError::internal(format!("the model could not read its input: {e}"))
        })
    }

    /// Keeps the first `length` tokens only.
    fn cut(&mut self, length: usize) {
        self.live.truncate(length);
        // A recurrent model cannot take back what it read.
        if !matches!(self.ctx.clear_kv_cache_seq(Some(0), Some(length as u32), None), Ok(true)) {
            self.forget();
        }
    }

    fn forget(&mut self) {
        self.live.clear();
        self.ctx.clear_kv_cache();
    }

    fn park(&mut self) {
        self.cut(self.live.len());
        if self.live.is_empty() {
            return;
        }
        // One that this one goes on from adds nothing.
        let live = &self.live;
        self.parked.retain(|p| !live.starts_with(&p.tokens));
        if let Ok(state) = self.ctx.state_seq_get(0, LlamaStateSeqFlags::empty()) {
            self.parked.push_back(Parked { tokens: self.live.clone(), state });
        }
        self.evict();
    }

    /// Parked tokens together are at most one context's worth, so that memory for them at most doubles.
    fn evict(&mut self) {
        let tokens = |parked: &VecDeque<Parked>| parked.iter().map(|p| p.tokens.len()).sum::<usize>();
        while self.parked.len() > MOST_PARKED || tokens(&self.parked) > self.n_ctx() {
            self.parked.pop_front();
        }
    }

    fn restore(&mut self, found: Parked, prompt: &[LlamaToken]) {
        self.forget();
        if self.ctx.state_seq_set(&found.state, 0).is_ok() {
            self.live.clone_from(&found.tokens);
        } else {
            self.forget();
        }
        // Another job that only begins the same way leaves it parked for its own.
        if found.tokens.len() - whole_prefix(&found.tokens, prompt) >= WORTH_PARKING {
            self.parked.push_back(found);
            self.evict();
        }
    }
}

/// Length of the whole chunks that `known` and `prompt` have in common, short of the prompt's last token: that one
/// must be read for the model to say what follows it.
fn whole_prefix(known: &[LlamaToken], prompt: &[LlamaToken]) -> usize {
    let prompt = &prompt[..prompt.len().saturating_sub(1)];
    let common = known.iter().zip(prompt).take_while(|(a, b)| a == b).count();
    common / CHUNK * CHUNK
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use llama_cpp_2::context::params::LlamaContextParams;
    use llama_cpp_2::llama_backend::LlamaBackend;
    use llama_cpp_2::model::LlamaModel;
    use llama_cpp_2::model::params::LlamaModelParams;

    use super::*;

    #[test]
    fn a_prefix_is_whole_chunks_and_leaves_a_token_to_read() {
        let tokens = |n: usize| (0..n as i32).map(LlamaToken).collect::<Vec<_>>();
        let two = tokens(2 * CHUNK);
        for (length, whole) in [(3 * CHUNK, 2), (2 * CHUNK, 1), (2 * CHUNK + 1, 2), (CHUNK + 8, 1), (0, 0)] {
            assert_eq!(whole_prefix(&two, &tokens(length)), whole * CHUNK, "{length}");
        }
        let mut other = tokens(3 * CHUNK);
        other[CHUNK + 8] = LlamaToken(-1);
        assert_eq!(whole_prefix(&two, &other), CHUNK);
    }

    #[test]
    fn a_recalled_prefix_gives_the_same_bits_as_a_fresh_reading() {
        let home = std::env::var("HOME").unwrap_or_default();
        let cache = std::env::var("XDG_CACHE_HOME").unwrap_or(format!("{home}/.cache"));
        let file =
            std::env::var("POSSE_TEST_GGUF").unwrap_or(format!("{cache}/posse/models/smollm2-135m-instruct-q4_1.gguf"));
        if !std::path::Path::new(&file).is_file() {
            return eprintln!("SKIPPED a_recalled_prefix_gives_the_same_bits: no model file; set POSSE_TEST_GGUF");
        }
        let mut backend = LlamaBackend::init().expect("llama.cpp");
        backend.void_logs();
        let model = LlamaModel::load_from_file(&backend, file, &LlamaModelParams::default()).expect("a model");
        let memory = || {
            let params = LlamaContextParams::default().with_n_ctx(NonZeroU32::new(2048)).with_n_threads(2);
            let params = params.with_n_threads_batch(2).with_n_batch(CHUNK as u32).with_n_ubatch(CHUNK as u32);
            Memory::new(model.new_context(&backend, params).expect("a context"))
        };
        let text = |name: &str, n: i32| {
            let lines: String = (0..n).map(|i| format!("{name} has {i} apples. ")).collect();
            model.vocab().tokenize(format!("A list. {lines}").as_bytes(), true, false)
        };
        // Reads a prompt and goes on for two tokens; gives how much was known, and all logits as bits.
        let run = |memory: &mut Memory, prompt: &[LlamaToken]| {
            let known = memory.recall(prompt);
            assert!(memory.read(prompt, || true).expect("read"));
            let mut bits = Vec::new();
            for i in 0..2 {
                bits.extend(memory.logits().iter().map(|l| l.to_bits()));
                memory.step(LlamaToken(100 + i), prompt.len() + i as usize).expect("a step");
            }
            (known, bits)
        };
        let mut used = memory();
        let prompts = [text("Anna", 96), text("Bert", 96), text("Anna", 112), text("Bert", 106), text("Anna", 98)];
        for (i, prompt) in prompts.iter().enumerate() {
            let (known, bits) = run(&mut used, prompt);
            assert_eq!(known > 4 * CHUNK, i >= 2, "prompt {i}: {known} known");
            assert!(run(&mut memory(), prompt).1 == bits, "prompt {i}: other bits");
        }
        assert!(used.parked.iter().map(|p| p.tokens.len()).sum::<usize>() <= 2048);
        // A reading that was given up half-way leaves what it had read.
        let asked = std::cell::Cell::new(0);
        let long = text("Carl", 120);
        used.recall(&long);
        let go_on = || asked.replace(asked.get() + 1) < 5;
        assert!(!used.read(&long, go_on).expect("read"));
        assert_eq!(run(&mut used, &long), (5 * CHUNK, run(&mut memory(), &long).1));
    }
}
