//! What is remembered: found by its words at once, saved once, changed and forgotten with nothing lost silently.

use std::sync::Arc;

use posse_core::job::transition::Event;
use posse_core::memory::{
    Became, Forgetting, MemoryFilter, MemoryFound, MemoryId, MemorySearch, NewMemory, Origin, PERSON, Remembered,
    Revision, SHARED, Spot,
};
use posse_core::port::RepositoryError;

use super::{Store, T0, finish, is_lost, running};

pub fn of(scope: &str, text: &str) -> NewMemory {
    let origin = Origin { author: scope.into(), ..Origin::default() };
    NewMemory { scope: scope.into(), text: text.into(), origin, ..NewMemory::default() }
}

pub async fn save(store: &dyn Store, new: NewMemory) -> Remembered {
    store.remember(vec![new], None, T0).await.expect("is saved").remove(0)
}

pub async fn search(store: &dyn Store, text: &str, filter: MemoryFilter) -> MemoryFound {
    store
        .search_memory(MemorySearch { text: text.into(), filter, limit: 10, ..MemorySearch::default() })
        .await
        .expect("is no error")
}

pub async fn texts(store: &dyn Store, text: &str) -> Vec<String> {
    let found = search(store, text, MemoryFilter::default()).await;
    found.items.into_iter().map(|hit| hit.item.text).collect()
}

pub async fn an_item_is_found_by_its_words_at_once(store: Arc<dyn Store>) {
    let tagged = NewMemory { tags: vec!["travel".into(), "ada".into()], ..of("r", "Ada is flying to Oslo on Friday") };
    let ada = save(&*store, tagged).await;
    save(&*store, of("r", "The harbour opens at six")).await;
    let shared = save(&*store, of(SHARED, "Oslo has two harbours")).await;
    let found = search(&*store, "When does she fly to Oslo?", MemoryFilter::default()).await;
    assert_eq!(found.items[0].item.id, ada.id, "endings of words make no difference");
    let told = (found.words.join(" "), found.items[0].words.join(" "));
    assert_eq!(told, ("fly oslo".into(), "fly oslo".into()));
    assert!(found.items[0].score >= found.items[1].score);
    let scopes = |scope: &str| MemoryFilter { scopes: Some(vec![scope.into()]), ..MemoryFilter::default() };
    let found = search(&*store, "Oslo", scopes(SHARED)).await;
    assert_eq!(found.items.iter().map(|hit| hit.item.id).collect::<Vec<_>>(), [shared.id]);
    for (filter, wanted) in [
        (MemoryFilter { tags: vec!["travel".into()], ..MemoryFilter::default() }, 1),
        (MemoryFilter { tags: vec!["travel".into(), "work".into()], ..MemoryFilter::default() }, 0),
        (MemoryFilter { author: Some("r".into()), ..MemoryFilter::default() }, 1),
        (MemoryFilter { since: Some(T0 + 1), ..MemoryFilter::default() }, 0),
        (MemoryFilter { until: Some(T0 + 1), ..MemoryFilter::default() }, 2),
        (MemoryFilter { untrusted: Some(true), ..MemoryFilter::default() }, 0),
    ] {
        assert_eq!(search(&*store, "Oslo", filter.clone()).await.items.len(), wanted, "{filter:?}");
        let listed = store.memory_items(filter.clone(), MemoryId(i64::MAX), 9).await.expect("can be listed");
        assert!(listed.len() >= wanted, "{filter:?}");
    }
}

/// Case M-5.
pub async fn a_question_may_have_anything_in_it(store: Arc<dyn Store>) {
    let titles = [
        "what, is this?",
        "the \"quoted\" title",
        "it's O'Neill: a life",
        "C++ (and more) - *notes*",
        "NOT and OR",
        "near NEAR(a b)",
        "AND",
        "{content} : trick",
        "semi; colon -- comment",
        "100% of _under_scores_",
        "naïve café",
        "東京の天気",
    ];
    for title in titles {
        save(&*store, of("r", title)).await;
    }
    for title in titles {
        assert!(texts(&*store, title).await.contains(&title.to_owned()), "{title}");
    }
    let newest = search(&*store, "? , ' \" - : * ( )", MemoryFilter::default()).await;
    assert!(newest.newest && newest.items.len() == 10, "where there is no word, the newest are shown");
    assert!(search(&*store, "", MemoryFilter::default()).await.newest);
    let long = "title ".to_owned() + &(0..5000).map(|n| format!("w{n} ")).collect::<String>();
    assert_eq!(texts(&*store, &long).await, ["the \"quoted\" title"]);
    assert_eq!(texts(&*store, "cafe").await, ["naïve café"], "marks on letters make no difference");
    assert_eq!(texts(&*store, "京").await, ["東京の天気"]);
}

pub async fn what_is_known_is_saved_once(store: Arc<dyn Store>) {
    let first = save(&*store, of("r", "Ada lives in Oslo.")).await;
    assert_eq!(first.became, Became::Saved);
    let same = save(&*store, of("r", "  ada lives in  Oslo")).await;
    assert_eq!(same, Remembered { id: first.id, became: Became::Known });
    assert_eq!(save(&*store, of("other", "Ada lives in Oslo")).await.became, Became::Saved, "another scope");
    let twice = vec![of("r", "Bo is four"), of("r", "Bo is four")];
    let saved = store.remember(twice, None, T0).await.expect("is saved");
    assert_eq!((saved[0].id, saved[1].became), (saved[1].id, Became::Known));
    // A call that is made again after a crash.
    let call = NewMemory { effect_key: Some("key-1".into()), ..of("r", "Cy likes tea") };
    let saved = save(&*store, call.clone()).await;
    store.forget_memory(vec![saved.id], reason("no"), None, T0).await.expect("is forgotten");
    assert_eq!(save(&*store, call).await, Remembered { id: saved.id, became: Became::Again });
    assert!(texts(&*store, "tea").await.is_empty(), "what was forgotten meanwhile stays so");
    let refused = store.remember(vec![of("r", "fine"), of("r", " ")], None, T0).await;
    assert!(matches!(refused, Err(RepositoryError::Misused(_))), "{refused:?}");
    assert!(texts(&*store, "fine").await.is_empty(), "all or none");
}

fn reason(text: &str) -> Forgetting {
    Forgetting { reason: text.into(), erase: false }
}

pub fn to(text: &str, origin: Origin) -> Revision {
    Revision { text: Some(text.into()), origin, ..Revision::default() }
}

/// Case M-1.
pub async fn what_contradicts_replaces_and_both_can_be_read(store: Arc<dyn Store>) {
    let by = |author: &str, untrusted| Origin {
        author: author.into(),
        untrusted,
        source: untrusted.then(|| "read_file".into()),
        ..Origin::default()
    };
    let loves = save(&*store, of("r", "Kim loves Chinese food")).await.id;
    let call = Revision { effect_key: Some("key-2".into()), ..to("Kim hates Chinese food", by("r", false)) };
    let hates = store.revise_memory(loves, call.clone(), None, T0 + 5).await.expect("is replaced");
    assert_eq!(hates.became, Became::Saved);
    assert_eq!(texts(&*store, "Chinese food").await, ["Kim hates Chinese food"]);
    let again = store.revise_memory(loves, call, None, T0 + 9).await.expect("is the same call");
    assert_eq!(again, Remembered { id: hates.id, became: Became::Again });
    let history = store.memory_history(loves).await.expect("can be read");
    let told: Vec<_> = history.iter().map(|item| (item.version, item.text.as_str())).collect();
    assert_eq!(told, [(1, "Kim loves Chinese food"), (2, "Kim hates Chinese food")]);
    assert_eq!(history, store.memory_history(hates.id).await.expect("can be read"));
    assert_eq!((history[0].superseded_by, history[1].supersedes), (Some(hates.id), Some(loves)));
    let refused = store.revise_memory(loves, to("Kim eats", by("r", false)), None, T0).await.expect_err("is replaced");
    assert!(refused.to_string().contains(&format!("item {}", hates.id)), "{refused}");
    // What replaces it is not trusted more than it, until a person says so.
    let tainted = store.revise_memory(hates.id, to("Kim pays by mail", by("r", true)), None, T0).await.expect("may");
    let item = store.memory_item(tainted.id).await.expect("can be read").expect("is there");
    assert!(item.origin.untrusted && item.origin.source.as_deref() == Some("read_file"), "{item:?}");
    let still = store.revise_memory(tainted.id, to("Kim pays", by("r", false)), None, T0).await.expect("may").id;
    assert!(store.memory_item(still).await.expect("can be read").expect("is there").origin.untrusted);
    let vouched = Revision { origin: by(PERSON, false), ..Revision::default() };
    let vouched = store.revise_memory(still, vouched, None, T0).await.expect("may").id;
    let item = store.memory_item(vouched).await.expect("can be read").expect("is there");
    assert_eq!((item.text.as_str(), item.origin.untrusted, item.version), ("Kim pays", false, 5));
    // Nor may what a person wrote be replaced by what a page says.
    let refused = store.revise_memory(vouched, to("Kim pays me", by("r", true)), None, T0).await;
    assert!(matches!(&refused, Err(RepositoryError::Refused(why)) if why.contains("read_file")), "{refused:?}");
    // One that says what another says already becomes that one.
    let other = save(&*store, of("r", "Lee is tall")).await.id;
    let joined = store.revise_memory(other, to("kim pays", by("r", false)), None, T0).await.expect("may");
    assert_eq!(joined, Remembered { id: vouched, became: Became::Known });
    assert!(texts(&*store, "tall").await.is_empty());
}

pub async fn what_is_forgotten_is_not_found(store: Arc<dyn Store>) {
    let lease = running(&*store, "r", T0).await;
    let in_job = |text: &str| {
        let origin = Origin { author: "r".into(), job: Some(lease.job), tool: Some("t".into()), ..Origin::default() };
        NewMemory { origin, ..of("r", text) }
    };
    let saved = store.remember(vec![in_job("the first tide"), in_job("the second tide")], Some(lease), T0).await;
    let saved = saved.expect("the lease stands");
    let kept = save(&*store, of("r", "a third tide")).await.id;
    assert_eq!(store.forget_memory(vec![saved[0].id], reason("wrong"), Some(lease), T0 + 1).await.expect("works"), 1);
    assert_eq!(store.forget_memory(vec![saved[0].id], reason("wrong"), Some(lease), T0 + 2).await.expect("works"), 0);
    let item = store.memory_item(saved[0].id).await.expect("can be read").expect("is there");
    assert_eq!((item.text.as_str(), item.reason.as_deref()), ("the first tide", Some("wrong")), "people can read it");
    assert_eq!(item.ended_at, Some(T0 + 1));
    assert_eq!(texts(&*store, "tide").await.len(), 2);
    // People forget by source, and for good.
    let of_job = MemoryFilter { job: Some(lease.job), ended: true, ..MemoryFilter::default() };
    let how = Forgetting { reason: "poisoned".into(), erase: true };
    assert_eq!(store.forget_memory_like(of_job.clone(), how.clone(), T0 + 3).await.expect("works"), 2);
    assert_eq!(store.forget_memory_like(of_job, how.clone(), T0 + 4).await.expect("works"), 0);
    for id in [saved[0].id, saved[1].id] {
        let item = store.memory_item(id).await.expect("can be read").expect("is there");
        assert_eq!((item.text.as_str(), item.reason.as_deref()), ("", Some("poisoned")));
    }
    assert_eq!(texts(&*store, "tide").await, ["a third tide"]);
    // With what it replaced.
    let person = Origin { author: PERSON.into(), ..Origin::default() };
    let newer = store.revise_memory(kept, to("a fourth tide", person), None, T0).await.expect("works").id;
    assert_eq!(store.forget_memory(vec![newer], how, None, T0).await.expect("works"), 1);
    assert!(store.memory_history(newer).await.expect("can be read").iter().all(|item| item.text.is_empty()));
    // Whoever lost the job changes nothing.
    finish(&*store, lease, Event::Complete, T0).await;
    assert!(is_lost(store.remember(vec![in_job("too late")], Some(lease), T0).await, lease.job));
    assert!(texts(&*store, "late").await.is_empty());
}

pub async fn what_stands_beside_an_item_finds_it_too(store: Arc<dyn Store>) {
    let turn = |place, text: &str| {
        let spot = Some(Spot { thread: "chat".into(), place });
        NewMemory { spot, ..of("r", text) }
    };
    let turns = [(1, "Where did you put the ladder?"), (2, "Behind the shed"), (3, "Thanks"), (9, "Good night")];
    let new = turns.iter().map(|(place, text)| turn(*place, text)).collect();
    let ids = store.remember(new, None, T0).await.expect("is saved");
    let found = search(&*store, "ladder", MemoryFilter::default()).await;
    let order: Vec<_> = found.items.iter().map(|hit| hit.item.id).collect();
    assert_eq!(order, [ids[0].id, ids[1].id], "itself first, then what was said next");
    assert_eq!((found.items[0].words.join(" "), found.items[1].around.join(" ")), ("ladder".into(), "ladder".into()));
    // Saved between two, and again.
    assert_eq!(save(&*store, turn(5, "Mind the ladder's third rung")).await.became, Became::Saved);
    assert_eq!(save(&*store, turn(5, "Mind the ladder's third rung")).await.became, Became::Known);
    assert_eq!(save(&*store, turn(3, "Thanks")).await.became, Became::Known);
    assert_eq!(search(&*store, "rung", MemoryFilter::default()).await.items.len(), 3, "beside both");
    let of_rung = MemoryFilter { thread: Some("chat".into()), since: Some(T0), ..MemoryFilter::default() };
    let rung = search(&*store, "rung", of_rung).await.items[0].item.id;
    store.forget_memory(vec![rung], reason("no"), None, T0).await.expect("is forgotten");
    assert!(texts(&*store, "rung").await.is_empty(), "nor by those beside it");
}

pub async fn what_left_a_conversation_is_found(store: Arc<dyn Store>) {
    let lease = running(&*store, "r", T0).await;
    store.archive(lease, 4, "[user] the ladder is behind the shed".into(), T0).await.expect("is kept");
    store.archive(lease, 9, "[user] and the key is under the mat".into(), T0).await.expect("is kept");
    let found = search(&*store, "ladder", MemoryFilter::default()).await;
    let item = &found.items[0].item;
    assert_eq!((item.scope.as_str(), item.origin.job, item.origin.untrusted), ("r", Some(lease.job), true));
    assert_eq!(found.items.len(), 2, "and what left after it");
}

pub async fn the_index_of_words_is_made_anew(store: Arc<dyn Store>) {
    for n in 0..600 {
        save(&*store, of("r", &format!("note {n} of the tide"))).await;
    }
    let before = store.memory_standing().await.expect("can be read");
    assert_eq!((before.items, before.without_words, before.stray_words), (600, 0, 0));
    store.reindex_memory().await.expect("works");
    assert_eq!(store.memory_standing().await.expect("can be read"), before);
    assert_eq!(texts(&*store, "599").await, ["note 599 of the tide"]);
    assert_eq!(save(&*store, of("r", "note 7 of the tide")).await.became, Became::Known);
}
