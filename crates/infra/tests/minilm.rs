//! The local embedder, against what other programs make of the same texts with the same weights:
//! `fixtures/minilm/reference.py` wrote `reference.json` beside it.

use base64::Engine as _;
use posse_core::model::embedder::Embedder as _;
use posse_infra::local_model::catalogue::EMBEDDER;
use posse_infra::local_model::{find, models_dir};
use posse_infra::minilm::{MODEL, MOST_TOKENS, MiniLm};
use serde::Deserialize;
use std::fs;

#[derive(Deserialize)]
struct Reference {
    text: String,
    /// 384 whole numbers of two bytes, in base64.
    vector: String,
}

fn references() -> Vec<(String, Vec<f32>)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/minilm/reference.json");
    let all: Vec<Reference> = serde_json::from_slice(&fs::read(path).expect("the fixture")).expect("JSON");
    let numbers = |text: &str| {
        let bytes = base64::engine::general_purpose::STANDARD.decode(text).expect("base64");
        bytes.as_chunks::<2>().0.iter().map(|two| f32::from(i16::from_le_bytes(*two))).collect()
    };
    all.into_iter().map(|one| (one.text, numbers(&one.vector))).collect()
}

/// The model, where somebody has fetched it.
fn fetched() -> Option<MiniLm> {
    let file = models_dir().and_then(|folder| find(&EMBEDDER, &folder).expect("the cache can be read"));
    if file.is_none() {
        eprintln!("skipped: needs posse model pull {}", EMBEDDER.name);
    }
    file.map(|file| MiniLm::open(&file).expect("it can be used"))
}

fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f32>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

#[tokio::test]
async fn vectors_are_those_of_the_reference() {
    let Some(model) = fetched() else { return };
    let references = references();
    assert_eq!(references.len(), 50);
    let texts: Vec<&str> = references.iter().map(|(text, _)| &text[..]).collect();
    let vectors = model.embed(&texts).await.expect("vectors");
    for ((text, expected), got) in references.iter().zip(&vectors) {
        let shown: String = text.chars().take(60).collect();
        assert_eq!(got.len(), 384);
        assert!((cosine(got, got) - 1.0).abs() < 1e-6 && (got.iter().map(|x| x * x).sum::<f32>() - 1.0).abs() < 1e-5);
        let likeness = cosine(got, expected);
        assert!(likeness >= 0.999, "{likeness} for {shown:?}");
    }
    let profile = model.profile().await.expect("known");
    assert_eq!((&profile.space.model[..], profile.space.dimension), (MODEL, 384));
    assert_eq!(profile.most_tokens, Some(MOST_TOKENS));
}

#[test]
fn a_text_has_its_vector_whatever_is_beside_it() {
    let Some(model) = fetched() else { return };
    let texts: Vec<String> = (0..40).map(|n| format!("note {n}: {}", "some more words ".repeat(n))).collect();
    let texts: Vec<&str> = texts.iter().map(|text| &text[..]).collect();
    let together = model.vectors(&texts).expect("vectors");
    for (text, beside) in texts.iter().zip(&together) {
        let alone = model.vectors(&[text]).expect("a vector");
        let likeness = cosine(&alone[0], beside);
        assert!(likeness > 0.999_99, "{likeness} for {text:?}");
    }
    assert!(model.vectors(&[]).expect("nothing").is_empty());
}

#[test]
fn a_file_that_is_no_model_is_told_of() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("model");
    let error = |bytes: &[u8]| {
        fs::write(&path, bytes).expect("written");
        MiniLm::open(&path).err().expect("it cannot be used").to_string()
    };
    let head = |json: &str| [&(json.len() as u64).to_le_bytes()[..], json.as_bytes()].concat();
    assert!(error(b"").contains("the embedding model"));
    assert!(error(&u64::MAX.to_le_bytes()).contains("no safetensors file"));
    assert!(error(&head("nonsense")).contains("its head is not understood"));
    let table = r#"{"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 99]}}"#;
    assert!(error(&head(table)).contains("does not end where it says"));
    assert!(error(&[&head("{}")[..], b"one\ntwo\n"].concat()).contains("[CLS] is not among its pieces"));
    let pieces = [&head("{}")[..], b"[CLS]\n[SEP]\n[UNK]\n"].concat();
    assert!(error(&pieces).contains("it has no embeddings.position_embeddings.weight"));
}
