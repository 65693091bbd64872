//! What commands that list things have in common.

use clap::Args;

/// Whether texts are whole
#[derive(Args, Clone, Copy)]
pub struct FullArgs {
    /// Whole texts; else those of more than 2,000 bytes are cut, and `cut` says how many bytes the whole has
    #[arg(long)]
    pub full: bool,
}

/// Where a part of a list begins
#[derive(Args, Clone, Copy)]
pub struct SkipArgs {
    /// Leave out the first so many: the next page
    #[arg(long, default_value_t = 0, value_name = "N", hide_default_value = true, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    skip: u32,
}

impl SkipArgs {
    /// How many are to be found from the beginning: one more than the page has tells whether there is a next one.
    pub fn most(self, limit: u32) -> u32 {
        self.skip + limit + 1
    }

    /// Makes a page of what was found, and gives where the next one begins if there is one.
    pub fn cut<T>(self, limit: u32, items: &mut Vec<T>) -> Option<i64> {
        items.drain(..items.len().min(self.skip as usize));
        let more = items.len() > limit as usize;
        items.truncate(limit as usize);
        more.then(|| i64::from(self.skip) + i64::from(limit))
    }
}
