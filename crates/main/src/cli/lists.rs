//! What commands that list things have in common.

use clap::Args;

/// Whether texts are whole
#[derive(Args, Clone, Copy)]
pub struct FullArgs {
    /// Whole texts; else those of more than 2,000 bytes are cut, and `cut` says how many bytes the whole has
    #[arg(long)]
    pub full: bool,
}

/// Makes a page of what was found from the beginning, one more than the page included, and gives where the next one
/// begins if there is one.
pub fn page<T>(items: &mut Vec<T>, skip: u32, limit: u32) -> Option<i64> {
    items.drain(..items.len().min(skip as usize));
    let more = items.len() > limit as usize;
    items.truncate(limit as usize);
    more.then(|| i64::from(skip) + i64::from(limit))
}
