//! What the command line may say.

use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::Parser;

/// Serve one GGUF model on loopback with the OpenAI chat API.
///
/// Prints one JSON line on stdout when ready; everything else goes to stderr.
#[derive(Debug, Clone, Parser)]
#[command(version, about)]
pub struct Args {
    /// The GGUF file to run
    #[arg(long, value_name = "FILE")]
    pub model: PathBuf,

    /// Port on 127.0.0.1; 0 takes any free one
    #[arg(long, default_value_t = 0)]
    pub port: u16,

    /// Threads that compute [default: one per core, at most 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=512))]
    pub threads: Option<u16>,

    /// Tokens that a prompt and its answer may have together; the model's own limit holds too
    #[arg(long, value_name = "TOKENS", default_value = "8192")]
    pub ctx: NonZeroU32,

    /// Exit after so many seconds without a request; 0 never does
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub idle_exit: u64,

    /// The model's name in the API [default: the file's name without its ending]
    #[arg(long)]
    pub name: Option<String>,

    /// Show llama.cpp's own log on stderr
    #[arg(long)]
    pub verbose: bool,

    /// Ask every request but GET /health for this bearer token
    // Only from the environment: a command line can be read by every user of the machine.
    #[arg(skip = std::env::var("POSSE_LOCAL_TOKEN").ok().filter(|t| !t.is_empty()))]
    pub token: Option<String>,
}

impl Args {
    pub fn model_name(&self) -> String {
        self.name.clone().unwrap_or_else(|| {
            self.model.file_stem().map_or_else(|| "local".into(), |s| s.to_string_lossy().into_owned())
        })
    }

    pub fn thread_count(&self) -> i32 {
        // Generation is bound by memory: beyond a few cores, more threads only wait for each other.
        let cores = || std::thread::available_parallelism().map_or(2, |n| n.get().min(8) as u16);
        i32::from(self.threads.unwrap_or_else(cores))
    }
}
