//! How fast what is remembered is saved and found by its meaning, and how much of what an exact comparison finds.
//!
//!     memory-peer TEXTS FOLDER [--items N] [--noise]
//!
//! TEXTS has a text in each line; the last 200 are asked for, the others saved. Vectors are made once by the local embedder and
//! kept in FOLDER (`vectors.f32`, and `questions.f32`, for other programs to be measured by). With `--noise` there may be more items
//! than texts: each further one has the vector of a text, moved a little.

use std::collections::HashSet;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use posse_core::memory::meaning::{Meaning, Space, bytes, likeness, numbers, unit};
use posse_core::memory::{MemoryId, MemorySearch, NewMemory};
use posse_core::model::embedder::Embedder as _;
use posse_core::port::{MemoryQueries as _, MemoryRepository as _};
use posse_infra::embedder::Local;
use posse_infra::sqlite::{Options, SqliteStore};

const QUESTIONS: usize = 200;
const AT_ONCE: usize = 500;
const TOP: usize = 10;

#[derive(Parser)]
struct Args {
    texts: PathBuf,
    folder: PathBuf,
    #[arg(long, default_value_t = 100_000)]
    items: usize,
    #[arg(long)]
    noise: bool,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let texts = std::fs::read_to_string(&args.texts)?;
    let texts: Vec<&str> = texts.lines().collect();
    ensure!(texts.len() > QUESTIONS, "there are {} texts, and {QUESTIONS} are asked for", texts.len());
    let (saved, asked) = texts.split_at(texts.len() - QUESTIONS);
    let saved = &saved[..args.items.min(saved.len())];
    ensure!(saved.len() == args.items || args.noise, "there are {} texts for {} items", saved.len(), args.items);
    let embedder = Local::default();
    let space = embedder.profile().await?.space;
    let mut vectors = vectors(&embedder, saved, &args.folder.join("vectors.f32"), &space).await?;
    let questions = self::vectors(&embedder, asked, &args.folder.join("questions.f32"), &space).await?;
    let mut dice = 14;
    for at in vectors.len()..args.items {
        vectors.push(moved(&vectors[at % saved.len()], &mut dice));
    }

    let path = args.folder.join("memory.db");
    for ending in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{ending}", path.display()));
    }
    let store = Arc::new(SqliteStore::open(&path, Options::default())?);
    let began = Instant::now();
    for (part, some) in (0..args.items).collect::<Vec<_>>().chunks(AT_ONCE).enumerate() {
        let new = |at: &usize| NewMemory {
            scope: "shared".into(),
            text: format!("{} ({at})", saved[at % saved.len()]),
            ..NewMemory::default()
        };
        store.remember(some.iter().map(new).collect(), None, part as i64).await?;
    }
    let took = began.elapsed();
    println!("saved, with words: {:.0} a second", args.items as f64 / took.as_secs_f64());

    let began = Instant::now();
    store.choose_memory_space(space.clone(), Some(1)).await?;
    while store.fill_memory_vectors().await? {}
    for some in vectors.iter().enumerate().collect::<Vec<_>>().chunks(AT_ONCE) {
        let made = some.iter().map(|(at, vector)| (MemoryId(*at as i64 + 1), (*vector).clone())).collect();
        store.embed_memory(space.clone(), made).await?;
    }
    println!("vectors stored: {:.0} a second", args.items as f64 / began.elapsed().as_secs_f64());

    let by_vector = |vector: &[f32]| MemorySearch {
        // No word, so that vectors alone are compared.
        text: "?".into(),
        meaning: Some(Meaning { space: space.clone(), vector: vector.to_vec() }),
        limit: TOP as u32,
        ..MemorySearch::default()
    };
    let (mut took, mut kept, mut all) = (Vec::new(), 0, 0);
    for question in &questions {
        let began = Instant::now();
        let found = store.search_memory(by_vector(question)).await?;
        took.push(began.elapsed());
        let found: HashSet<_> = found.items.iter().map(|hit| hit.item.id.0 as usize - 1).collect();
        let exact = exact(&vectors, question);
        kept += exact.iter().filter(|at| found.contains(at)).count();
        all += exact.len();
    }
    told("by meaning alone", took);
    println!("  of what is alike by 0.2 or more, found of the first {TOP}: {:.3}", kept as f64 / all.max(1) as f64);
    let mut took = Vec::new();
    for (text, question) in asked.iter().zip(&questions) {
        let began = Instant::now();
        store.search_memory(MemorySearch { text: (*text).into(), ..by_vector(question) }).await?;
        took.push(began.elapsed());
    }
    told("by words and meaning", took);
    let mut took = Vec::new();
    for text in asked {
        let began = Instant::now();
        let what = MemorySearch { text: (*text).into(), limit: TOP as u32, ..MemorySearch::default() };
        store.search_memory(what).await?;
        took.push(began.elapsed());
    }
    told("by words alone", took);
    Ok(())
}

fn told(what: &str, mut took: Vec<Duration>) {
    took.sort();
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize].as_secs_f64() * 1000.0;
    println!(
        "{what}: median {:.2} ms, 95 of 100 within {:.2} ms, the first to end {:.2} ms",
        at(0.5),
        at(0.95),
        at(0.0)
    );
}

/// What is most alike, by all numbers of all vectors.
fn exact(vectors: &[Vec<f32>], question: &[f32]) -> Vec<usize> {
    let mut all: Vec<_> = vectors.iter().enumerate().map(|(at, vector)| (likeness(question, vector), at)).collect();
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    all.into_iter().take(TOP).filter(|(likeness, _)| *likeness >= 0.2).map(|(_, at)| at).collect()
}

async fn vectors(embedder: &Local, texts: &[&str], file: &Path, space: &Space) -> Result<Vec<Vec<f32>>> {
    let size = 4 * space.dimension;
    let mut kept = std::fs::read(file).unwrap_or_default();
    let mut file = OpenOptions::new().create(true).append(true).open(file)?;
    while kept.len() < texts.len() * size {
        let from = kept.len() / size;
        let made = embedder.embed(&texts[from..texts.len().min(from + 256)]).await?;
        let made: Vec<u8> = made.iter().flat_map(|vector| bytes(vector)).collect();
        file.write_all(&made)?;
        kept.extend(made);
    }
    kept.chunks_exact(size)
        .take(texts.len())
        .map(|bytes| numbers(bytes, space.dimension).context("a vector of another length"))
        .collect()
}

/// A vector with a tenth of noise.
fn moved(vector: &[f32], dice: &mut u64) -> Vec<f32> {
    let scale = 0.35 / (vector.len() as f32).sqrt();
    let noise = vector.iter().map(|x| {
        *dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        x + scale * ((*dice >> 40) as f32 / (1 << 23) as f32 - 1.0)
    });
    unit(noise.collect()).unwrap_or_else(|| vector.to_vec())
}
