//! Posse in the benchmark harness for queues: `queue-peer VERB ARGUMENTS`, with the verbs and arguments of the harness.
//! `POSSE_SEAL_KEYS` has it seal what it stores.

use clap::Parser as _;
use posse_bench::queue::process::{Verb, run};
use posse_infra::sqlite::{KEYS_VARIABLE, Keys};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let keys = std::env::var(KEYS_VARIABLE).unwrap_or_default();
    let keys = if keys.trim().is_empty() { Keys::default() } else { Keys::parse(&keys).map_err(anyhow::Error::msg)? };
    run(Verb::parse_from(std::env::args_os().skip(1)), keys).await
}
