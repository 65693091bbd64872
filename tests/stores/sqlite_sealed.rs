//! Texts that are sealed: the behaviour suite with a key, and what a key keeps from those who have none.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use posse_core::annotation::NewAnnotation;
use posse_core::job::transition::Event;
use posse_core::job::{JobProgress, JobState, NewJob, Payload};
use posse_core::memory::{Forgetting, MemoryFilter, MemoryId, MemorySearch, NewMemory, Origin};
use posse_core::port::AnnotationRepository as _;
use posse_core::port::RateLimiter;
use posse_core::port::{
    AnnotationQueries, CareRepository, Database as _, Ending, JobFilter, JobQueries, JobRepository, JobSearch,
    MemoryQueries, MemoryRepository, QuestionFilter, QuestionRepository, RepositoryError, SessionQueries,
    SessionRepository, Upkeep as _,
};
use posse_core::queue::rate::{ModelRates, ModelUse, RequestOutcome};
use posse_core::run::journal::Entry;
use posse_core::schedule::{Missed, Overlap, Schedule};
use posse_core::session::{NewSession, Stretch};
use posse_infra::sqlite::{Keys, Options, SqliteDatabase, SqliteStore, Synchronous, enqueue_in};

use super::behaviour::{
    self, Door, Store, T0, behaviours, claim, ending, for_properties, job, note, output, request, shared_behaviours,
    suite,
};

/// What must not be found in a file.
const CANARY: &str = "canary-4711-in-the-clear";

fn keys(seeds: &[&str]) -> Keys {
    let words: Vec<_> = seeds.iter().map(|seed| seed.repeat(64)).collect();
    Keys::parse(&words.join(",")).expect("are keys")
}

fn open(path: &Path, keys: Keys) -> SqliteStore {
    try_open(path, keys).expect("opens")
}

fn try_open(path: &Path, keys: Keys) -> Result<SqliteStore, RepositoryError> {
    SqliteStore::open(path, Options { synchronous: Synchronous::Normal, keys, ..Options::default() })
}

struct SealedDoor(tempfile::TempDir);

fn door() -> SealedDoor {
    SealedDoor(tempfile::tempdir().expect("a folder"))
}

#[async_trait]
impl Door for SealedDoor {
    async fn fresh(&self) -> Arc<dyn Store> {
        self.again().await
    }

    async fn again(&self) -> Arc<dyn Store> {
        Arc::new(open(&self.0.path().join("jobs.db"), keys(&["a"])))
    }
}

suite!(door());

/// Says the canary everywhere where people and models say something.
async fn say_it_everywhere(store: &SqliteStore) {
    let goal = || Payload { goal: format!("find the {CANARY}"), ..Payload::default() };
    let (session, _) = store.begin_session(NewSession { name: None, role: "r".into() }, T0).await.expect("begins");
    let said = NewJob { payload: Payload { session: Some(session.id), ..goal() }, ..job("r") };
    store.enqueue(vec![said, NewJob { payload: goal(), ..job("r") }], T0).await.expect("is stored");
    let claimed = claim(store, "r", 2, T0).await;
    let [first, second] = [claimed[0].lease, claimed[1].lease];
    let long = Entry::CallEnded {
        call_id: "none".into(),
        outcome: posse_core::run::journal::CallOutcome::Done,
        text: format!("{CANARY} ").repeat(500),
        annotations: vec![NewAnnotation { text: CANARY.into(), tags: vec![] }],
        ms: 1,
    };
    let entries = vec![behaviour::journals::began(CANARY), note(CANARY), long];
    store.append(first, 0, entries, T0).await.expect("is saved");
    store.archive(first, 2, CANARY.into(), T0).await.expect("is saved");
    let origin = Origin { author: "kim".into(), ..Origin::default() };
    let metadata = [("what".to_owned(), CANARY.into())].into_iter().collect();
    let item =
        |text: &str| NewMemory { scope: "r".into(), text: text.into(), origin: origin.clone(), ..NewMemory::default() };
    let items = vec![NewMemory { metadata, ..item(&format!("a saved {CANARY}")) }, item("short")];
    let saved = store.remember(items, None, T0).await.expect("is saved");
    let how = Forgetting { reason: format!("it is {CANARY}"), erase: false };
    store.forget_memory(vec![saved[1].id], how, None, T0).await.expect("is forgotten");
    store.report_progress(first, JobProgress::new(0.5, CANARY, T0)).await.expect("is kept");
    store.annotate(first.job, "kim".into(), NewAnnotation { text: CANARY.into(), tags: vec![] }, T0).await.expect("is");
    let done = Ending { output: Some(output(CANARY)), ..ending(Event::Complete, T0) };
    store.finish(first, done, T0).await.expect("ends");
    let stretch = Stretch { session: session.id, through: first.job };
    store.keep_summary(stretch, format!("they said {CANARY}"), T0).await.expect("is kept");
    let asked = Entry::Asked { call_id: "q".into(), questions: vec![format!("is it {CANARY}?")], open_ms: None };
    let waits = Ending { entries: vec![asked], ..ending(Event::Suspend, T0) };
    store.finish(second, waits, T0).await.expect("waits");
    let question =
        store.questions(QuestionFilter { limit: 1, ..QuestionFilter::default() }).await.expect("can be read");
    store.answer(question[0].id, format!("yes, {CANARY}"), "kim".into(), T0).await.expect("is answered");
    let again = claim(store, "r", 1, T0).await[0].lease;
    let failed = Ending { reason: Some(format!("no {CANARY}")), ..ending(Event::Fail, T0 + 9) };
    store.finish(again, failed, T0).await.expect("ends");
    let schedule = Schedule {
        name: "often".into(),
        cron: "0 9 * * *".into(),
        zone: "UTC".into(),
        job: NewJob { payload: goal(), ..job("r") },
        damage: None,
        missed: Missed::Once,
        overlap: Overlap::Skip,
        next_at: T0,
        paused_at: None,
        created_at: T0,
        last: None,
    };
    store.add_schedule(schedule).await.expect("is added");
    let rates = ModelRates::default();
    let about = ModelUse { endpoint: "e".into(), model: "m".into(), rates, requests: 1, tokens: 0, is_probe: false };
    store.settle(about.clone(), about, RequestOutcome::Failed(CANARY.into()), T0).await.expect("is settled");
}

/// Everything that was said, as it can be read.
async fn all_that_was_said(store: &SqliteStore) -> Vec<String> {
    let mut said = Vec::new();
    for job in store.jobs(JobFilter { limit: 9, ..JobFilter::default() }).await.expect("can be listed") {
        said.extend([format!("{:?}", store.attempts(job.id).await), format!("{:?}", store.journal(job.id, 0).await)]);
        said.extend([format!("{:?}", store.annotations(job.id).await), format!("{:?}", store.archived(job.id).await)]);
        said.push(format!("{job:?}"));
    }
    let questions = QuestionFilter { settled: true, limit: 9, ..QuestionFilter::default() };
    said.push(format!("{:?}", store.questions(questions).await));
    for session in store.sessions(None, 9).await.expect("can be listed") {
        let exchanges = store.exchanges(session.id, None).await.expect("can be read");
        let through = exchanges[0].job;
        said.push(format!("{exchanges:?}"));
        said.push(format!("{:?}", store.session_summary(Stretch { session: session.id, through }).await));
    }
    let all = MemoryFilter { ended: true, ..MemoryFilter::default() };
    for item in store.memory_items(all, MemoryId(i64::MAX), 9).await.expect("can be listed") {
        said.push(format!("{item:?}"));
    }
    said.push(format!("{:?}", store.schedules().await));
    said.push(format!("{:?}", store.failing_endpoints().await));
    said
}

/// In how many of the database's files the canary can be found.
fn found_in_files(path: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(path.parent().expect("a folder")).expect("can be read");
    let has = |file: &PathBuf| {
        let bytes = std::fs::read(file).expect("can be read");
        bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes())
    };
    let name = path.file_name().expect("a name").to_string_lossy().into_owned();
    let ours = |file: &PathBuf| file.file_name().is_some_and(|other| other.to_string_lossy().starts_with(&name));
    files.map(|file| file.expect("an entry").path()).filter(|file| ours(file) && has(file)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_is_said_stands_in_the_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("jobs.db");
    let store = open(&path, keys(&["a"]));
    say_it_everywhere(&store).await;
    store.backup(&folder.path().join("jobs.db.copy")).await.expect("is copied");
    // The log is there, and what was written stands in it.
    assert!(std::fs::metadata(folder.path().join("jobs.db-wal")).expect("is there").len() > 0);
    assert_eq!(found_in_files(&path), [""; 0].map(PathBuf::from));
    let said = all_that_was_said(&store).await;
    assert!(said.iter().filter(|said| said.contains(CANARY)).count() >= 12, "{said:#?}");
    assert!(said.iter().all(|said| !said.contains("sealed with")), "{said:#?}");
    for text in ["find the CANARY", "no canary", CANARY] {
        let filter = JobFilter { text: Some(text.into()), limit: 9, ..JobFilter::default() };
        let found = store.ids(filter).await.expect("can be searched").len();
        assert_eq!(found, if text.starts_with("no") { 1 } else { 2 }, "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_is_sealed_turned_to_another_key_and_opened_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("jobs.db");
    let store = open(&path, Keys::default());
    say_it_everywhere(&store).await;
    let said = all_that_was_said(&store).await;
    drop(store);
    // In the database or its log: of connections that close side by side none may take the log in.
    assert!(!found_in_files(&path).is_empty(), "in the clear it can be found");
    let exchange = async |keys: Keys, clear: bool| {
        let store = open(&path, keys);
        let done = store.reseal(clear, &mut |_, _| {}).await.expect("works");
        let again = store.reseal(clear, &mut |_, _| {}).await.expect("works");
        assert_eq!((done.closed, again.values), (0, 0), "what is done needs no more");
        drop(store);
        SqliteDatabase { path: path.clone(), keys: Keys::default() }.compact().expect("is rewritten");
        done.values
    };
    let first = exchange(keys(&["a"]), false).await;
    assert!(first >= 14, "{first} values");
    assert_eq!(found_in_files(&path), [""; 0].map(PathBuf::from));
    assert_eq!(all_that_was_said(&open(&path, keys(&["a"]))).await, said);

    assert_eq!(exchange(keys(&["b", "a"]), false).await, first);
    assert!(try_open(&path, keys(&["a"])).is_err(), "the old key is of no use any more");
    assert_eq!(all_that_was_said(&open(&path, keys(&["b"]))).await, said);

    assert_eq!(exchange(keys(&["b"]), true).await, first);
    assert_eq!(all_that_was_said(&open(&path, Keys::default())).await, said);
    assert_eq!(found_in_files(&path), std::slice::from_ref(&path));
}

/// Case M-7, of meaning.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_sealed_is_found_by_its_meaning_and_its_vector_stands_in_no_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("jobs.db");
    let embedder = behaviour::meaning::concepts("a", 384);
    let store: Arc<dyn Store> = Arc::new(open(&path, keys(&["a"])));
    for text in [format!("a huge automobile {CANARY}"), "the harbour".to_owned()] {
        let new = NewMemory { scope: "r".into(), text, ..NewMemory::default() };
        store.remember(vec![new], None, T0).await.expect("is saved");
    }
    let found = async |store: &dyn Store| {
        let found = behaviour::meaning::ask(store, &embedder, "big car", MemoryFilter::default()).await;
        found.items.iter().filter_map(|hit| hit.likeness).collect::<Vec<_>>()
    };
    assert_eq!(found(&*store).await, [0.0; 0]);
    assert_eq!(behaviour::meaning::embed_all(&store, &embedder, 1).await, 2);
    let alike = found(&*store).await;
    assert_eq!((alike.len(), behaviour::meaning::faults(&*store).await), (1, (0, 0, 0)));
    let bytes = posse_core::memory::meaning::bytes(&embedder.vector(&format!("a huge automobile {CANARY}")));
    let in_files = || {
        let files = std::fs::read_dir(folder.path()).expect("can be listed").flatten();
        files.filter(|file| std::fs::read(file.path()).expect("reads").windows(16).any(|w| w == &bytes[..16])).count()
    };
    assert_eq!(in_files(), 0);
    drop(store);
    // Vectors are sealed with what they are of: nothing is made anew when keys change, or when there are none any more.
    let sealed = open(&path, keys(&["b", "a"]));
    sealed.reseal(false, &mut |_, _| {}).await.expect("works");
    assert_eq!((found(&sealed).await, in_files()), (alike.clone(), 0));
    sealed.reseal(true, &mut |_, _| {}).await.expect("works");
    drop(sealed);
    let clear = open(&path, Keys::default());
    assert_eq!((found(&clear).await, behaviour::meaning::faults(&clear).await), (alike.clone(), (0, 0, 0)));
    drop(clear);
    let again = open(&path, keys(&["a"]));
    again.reseal(false, &mut |_, _| {}).await.expect("works");
    drop(again);
    SqliteDatabase { path: path.clone(), keys: Keys::default() }.compact().expect("is rewritten");
    let again = open(&path, keys(&["a"]));
    assert_eq!((found(&again).await, behaviour::meaning::faults(&again).await, in_files()), (alike, (0, 0, 0), 0));
}

/// Case M-7.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_sealed_is_found_by_its_words_and_stands_in_no_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("jobs.db");
    let store = open(&path, Keys::default());
    say_it_everywhere(&store).await;
    let search = async |store: &SqliteStore| {
        let what = MemorySearch { text: "saved canary".into(), limit: 9, ..MemorySearch::default() };
        let found = store.search_memory(what).await.expect("is no error");
        found.items.into_iter().map(|hit| (hit.item.id, hit.score)).collect::<Vec<_>>()
    };
    let found = search(&store).await;
    assert_eq!(found.len(), 4, "what was saved, what left a conversation, and a question with its answer");
    drop(store);
    let store = open(&path, keys(&["a"]));
    store.reseal(false, &mut |_, _| {}).await.expect("works");
    drop(store);
    SqliteDatabase { path: path.clone(), keys: Keys::default() }.compact().expect("is rewritten");
    let store = open(&path, keys(&["a"]));
    assert_eq!(search(&store).await, found, "it is found as before, and as well");
    let new = NewMemory { scope: "r".into(), text: format!("another {CANARY}"), ..NewMemory::default() };
    store.remember(vec![new.clone()], None, T0).await.expect("is saved");
    assert_eq!(search(&store).await.len(), 5);
    let known = store.remember(vec![new], None, T0).await.expect("is known")[0];
    assert_eq!(known.became, posse_core::memory::Became::Known);
    store.backup(&folder.path().join("jobs.db.copy")).await.expect("is copied");
    assert_eq!(found_in_files(&path), [""; 0].map(PathBuf::from));
    let words = rusqlite::Connection::open(&path).expect("opens");
    let words: i64 =
        words.query_row("SELECT count(*) FROM memory_words_docsize", [], |row| row.get(0)).expect("counts");
    assert_eq!(words, 0);
}

#[tokio::test]
async fn who_has_not_the_key_sees_that_something_is_there_and_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("jobs.db");
    let right = keys(&["a"]);
    let store = open(&path, right.clone());
    say_it_everywhere(&store).await;
    let id = right.sealing().expect("one seals");
    for wrong in [Keys::default(), keys(&["b"])] {
        let refused = try_open(&path, wrong.clone()).err().expect("is refused").to_string();
        assert!(refused.contains(id) && refused.contains("POSSE_SEAL_KEYS"), "{refused}");
        let looks = SqliteStore::open_read_only(&path, wrong.clone()).expect("may look");
        let jobs = looks.jobs(JobFilter { role: Some("r".into()), limit: 9, ..JobFilter::default() }).await;
        let jobs = jobs.expect("are listed");
        assert_eq!(jobs.len(), 2);
        assert!(jobs.iter().all(|job| job.payload.goal.contains(id) && job.damage.is_some()), "{jobs:?}");
        let journal = looks.journal(jobs[0].id, 0).await.expect_err("cannot be read").to_string();
        assert!(journal.contains(id), "{journal}");
        let said = all_that_was_said(&looks).await;
        assert!(said.iter().all(|said| !said.contains(CANARY)), "{said:#?}");
        let mut guest =
            <diesel::SqliteConnection as diesel::Connection>::establish(path.to_str().expect("UTF-8")).expect("opens");
        assert!(enqueue_in(&mut guest, &wrong, vec![job("r")], T0).is_err());
        assert!(enqueue_in(&mut guest, &Keys::default(), vec![job("r")], T0).is_err(), "not in the clear either");
        assert!(enqueue_in(&mut guest, &right, vec![job("z")], T0).is_ok());
    }
    assert_eq!(claim(&store, "z", 9, T0).await.len(), 2);
}

#[tokio::test]
async fn a_worker_leaves_what_it_cannot_open_and_works_the_rest() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("jobs.db");
    let old = open(&path, keys(&["a"]));
    let mine = behaviour::enqueue(&old, "r", T0).await;
    // Others were given a new key while this one was at work.
    let new = open(&path, keys(&["b", "a"]));
    let theirs = behaviour::enqueue(&new, "r", T0 - 5).await;
    let claimed = claim(&old, "r", 9, T0).await;
    assert_eq!(claimed.iter().map(|one| one.job.id).collect::<Vec<_>>(), [mine]);
    let refused = old.claim(request("r", 9, T0)).await.expect_err("is not here").to_string();
    let key = keys(&["b"]);
    assert!(refused.contains(key.sealing().expect("one seals")), "{refused}");
    let job = new.job(theirs).await.expect("can be read").expect("is there");
    assert_eq!((job.state, job.attempt), (JobState::Available, 0), "no attempt was spent");
    assert_eq!(claim(&new, "r", 9, T0).await.len(), 1);
}

#[tokio::test]
async fn rows_that_were_exchanged_are_not_worked() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("jobs.db");
    let store = open(&path, keys(&["a"]));
    let jobs = behaviour::enqueue_all(&store, vec![job("r"), job("r"), job("r")], T0).await;
    let other = rusqlite::Connection::open(&path).expect("opens");
    let taken: String =
        other.query_row("SELECT payload FROM job_data WHERE job_id = 1", [], |row| row.get(0)).expect("is there");
    other.execute("UPDATE job_data SET payload = ?1 WHERE job_id = 2", [taken]).expect("works");
    let shown = behaviour::get(&store, jobs[1]).await;
    assert!(shown.damage.as_deref().is_some_and(|why| why.contains("somebody changed it")), "{shown:?}");
    let claimed = claim(&store, "r", 9, T0).await;
    assert_eq!(claimed.iter().map(|one| one.job.id).collect::<Vec<_>>(), [jobs[0], jobs[2]]);
    let given_up = behaviour::get(&store, jobs[1]).await;
    assert_eq!(given_up.state, JobState::Discarded);
    assert!(given_up.reason.as_deref().is_some_and(|why| why.contains("somebody changed it")), "{given_up:?}");
    // An entry of another journal's place.
    store.append(claimed[0].lease, 0, vec![note("one"), note("two")], T0).await.expect("is saved");
    let exchanged = "UPDATE steps SET data = (SELECT data FROM steps WHERE seq = 0) WHERE seq = 1";
    other.execute(exchanged, []).expect("works");
    let read = store.journal(jobs[0], 0).await;
    assert!(matches!(read, Err(RepositoryError::Unusable(_))), "{read:?}");
}
