//! What is given out as JSON has a schema, and keeps it: programs read it. Whoever changes one on purpose runs this test with
//! `POSSE_ACCEPT=1`, looks at what is different in `schemas.json`, and tells of it in CHANGELOG.md.

use std::path::Path;

use posse_app::batch::Stored;
use posse_app::bench::BenchReport;
use posse_app::change::Preview;
use posse_app::doctor::Diagnosis;
use posse_app::enqueue::EnqueuedView;
use posse_app::events::WorkEvent;
use posse_app::groups::GroupView;
use posse_app::jobs::{JobDocument, JobItem};
use posse_app::mcp::{McpAcceptance, McpServerView, McpTest, McpToolView};
use posse_app::memory::{Imported, MemoryDocument, MemoryLine, Reindexed};
use posse_app::models::ModelList;
use posse_app::personas::{PersonaView, SkillDocument, SkillItem, ToolView};
use posse_app::queues::{QueueDocument, QueueView};
use posse_app::schedules::ScheduleDocument;
use posse_app::sessions::SessionDocument;
use posse_app::status::Standing;
use posse_app::workers::WorkerView;
use posse_core::annotation::Annotation;
use posse_core::events::JobEvent;
use posse_core::events::run::Happened;
use posse_core::job::question::Question;
use posse_core::memory::block::{Block, BlockEdited};
use posse_core::memory::{MemoryFound, MemoryItem};
use posse_core::queue::rules::Rule;
use posse_core::schedule::Schedule;
use posse_core::session::Session;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

fn add<T: JsonSchema>(generator: &mut SchemaGenerator, documents: &mut Map<String, Value>, name: &str) {
    documents.insert(name.into(), generator.subschema_for::<T>().to_value());
}

#[test]
fn the_schemas_of_what_is_given_out_stay_as_they_are() {
    let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut documents = Map::new();
    add::<Annotation>(&mut generator, &mut documents, "annotation");
    add::<Preview>(&mut generator, &mut documents, "change of many jobs");
    add::<Diagnosis>(&mut generator, &mut documents, "doctor");
    add::<EnqueuedView>(&mut generator, &mut documents, "enqueued job");
    add::<Stored>(&mut generator, &mut documents, "enqueued file");
    add::<GroupView>(&mut generator, &mut documents, "group");
    add::<JobDocument>(&mut generator, &mut documents, "job");
    add::<JobEvent>(&mut generator, &mut documents, "job event");
    add::<JobItem>(&mut generator, &mut documents, "job in a list");
    add::<Rule>(&mut generator, &mut documents, "limit in a list");
    add::<BenchReport>(&mut generator, &mut documents, "bench of a model");
    add::<McpServerView>(&mut generator, &mut documents, "MCP server in a list");
    add::<McpToolView>(&mut generator, &mut documents, "MCP tool in a list");
    add::<McpTest>(&mut generator, &mut documents, "MCP server tested");
    add::<McpAcceptance<'static>>(&mut generator, &mut documents, "MCP tools accepted");
    add::<MemoryDocument>(&mut generator, &mut documents, "memory item");
    add::<MemoryItem>(&mut generator, &mut documents, "memory item in a list");
    add::<MemoryLine>(&mut generator, &mut documents, "memory item in a file");
    add::<MemoryFound>(&mut generator, &mut documents, "memory found");
    add::<Reindexed>(&mut generator, &mut documents, "memory reindexed");
    add::<Block>(&mut generator, &mut documents, "memory block");
    add::<BlockEdited>(&mut generator, &mut documents, "memory block edited");
    add::<Imported>(&mut generator, &mut documents, "memory imported");
    add::<ModelList>(&mut generator, &mut documents, "models");
    add::<PersonaView<'static>>(&mut generator, &mut documents, "persona");
    add::<Question>(&mut generator, &mut documents, "question");
    add::<QueueDocument>(&mut generator, &mut documents, "queue");
    add::<QueueView>(&mut generator, &mut documents, "queue in a list");
    add::<Happened>(&mut generator, &mut documents, "run event");
    add::<ScheduleDocument>(&mut generator, &mut documents, "schedule");
    add::<Schedule>(&mut generator, &mut documents, "schedule in a list");
    add::<SessionDocument>(&mut generator, &mut documents, "session");
    add::<Session>(&mut generator, &mut documents, "session in a list");
    add::<SkillDocument<'static>>(&mut generator, &mut documents, "skill");
    add::<SkillItem<'static>>(&mut generator, &mut documents, "skill in a list");
    add::<Standing>(&mut generator, &mut documents, "status");
    add::<ToolView>(&mut generator, &mut documents, "tool");
    add::<WorkEvent<'static>>(&mut generator, &mut documents, "work event");
    add::<WorkerView>(&mut generator, &mut documents, "worker in a list");
    let definitions = generator.take_definitions(true);
    let now = json!({"documents": documents, "$defs": definitions});
    let now = serde_json::to_string_pretty(&now).expect("JSON") + "\n";
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas.json");
    if std::env::var_os("POSSE_ACCEPT").is_some() {
        std::fs::write(&file, &now).expect("is written");
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    let first = now.lines().zip(kept.lines()).position(|(now, kept)| now != kept);
    assert!(now == kept, "from line {:?} on schemas.json is not what the types say; POSSE_ACCEPT=1 takes it", first);
}
