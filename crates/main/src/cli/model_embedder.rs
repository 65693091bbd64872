//! `posse model test --embedder`: whether what turns texts into vectors answers, and whether it tells meanings apart.

use std::time::Instant;

use posse_app::Code;

use super::prelude::*;
use crate::embedder::Chosen;
use crate::env;
use crate::output::text::{duration, one_line, plural};

/// Two sentences that say the same in other words, and one that has words of the first and another meaning.
const SENTENCES: [&str; 3] = [
    "The invoice must be paid by Friday.",
    "Settle the bill before the end of the week.",
    "On Friday we paid a visit to the castle.",
];

pub async fn test(cx: &Context) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let chosen = Chosen::of(&settings, &env::own);
    let failed = |error: posse_core::model::embedder::EmbedError| fail(Code::Failed, error.message);
    let (Some(embedder), Some(view)) = (chosen.build(&env::own).map_err(failed)?, chosen.view(&env::own)) else {
        return Err(usage(
            "there is to be no embedder: kind = \"none\" in [embedder] of config/posse.toml; remove that",
        ));
    };
    let profile = embedder.profile().await.map_err(failed)?;
    let asked = Instant::now();
    let vectors = embedder.embed(&SENTENCES).await.map_err(failed)?;
    let took = asked.elapsed();
    let likeness = |a: usize, b: usize| -> f32 { vectors[a].iter().zip(&vectors[b]).map(|(x, y)| x * y).sum() };
    let (same, other) = (likeness(0, 1), likeness(0, 2));
    let dimension = profile.space.dimension;
    if cx.out.json {
        return cx.out.document(&json!({
            "model": profile.space.model, "dimension": dimension, "max_tokens": profile.most_tokens, "kind": view.kind,
            "place": view.place, "ms": took.as_millis() as u64, "same_meaning": same, "other_meaning": other,
        }));
    }
    let paint = cx.out.paint;
    cx.out.line(format!("{}  {} answers ({})", paint.green("✓"), one_line(&profile.space.model, 60), view.place))?;
    let read = profile.most_tokens.map(|n| format!("; reads {} of a text", plural(n as u64, "token")));
    cx.out.line(format!("   a vector has   {}{}", plural(dimension as u64, "number"), read.unwrap_or_default()))?;
    cx.out.line(format!("   the same, in other words     {same:.2} alike"))?;
    cx.out.line(format!("   another meaning, same words  {other:.2} alike"))?;
    cx.out.line(format!("   took           {} for three sentences", duration(took.as_millis() as i64)))?;
    Ok(Exit::Ok)
}
