//! `posse memory block`: what every run of a role has before it from its beginning.

use posse_core::clock::Millis;
use posse_core::memory::block::{Block, BlockEdit, BlockEdited, Change, MAX_BYTES, NOTES, check_name};
use posse_core::memory::{Became, MemoryItem, Origin, PERSON, SHARED};
use posse_core::port::Store;
use posse_core::text::has_too_many;
use std::sync::Arc;

use super::enqueue::read_words;
use super::prelude::*;
use crate::output::table::{Cell, plain};
use crate::output::text::{ago, count, one_line, plural, visible};

#[derive(Subcommand)]
pub enum BlockCommand {
    /// All blocks
    List,
    /// What a block says
    Show(NameArgs),
    /// Change what a block says, or begin one. Runs that begin from then on have it before them
    Edit(EditArgs),
    /// What a block said in each version, and who wrote it
    History(NameArgs),
    /// Bring back what a block said before its last change, and again, what it said before that
    Undo(UndoArgs),
}

#[derive(Args)]
pub struct NameArgs {
    /// The block: `profile` is about the people who are worked for, `notes` a persona's own, and others as you like
    #[arg(value_parser = name)]
    name: String,
    /// Whose it is: a persona's role; every persona's when absent
    #[arg(long, default_value = SHARED, value_name = "ROLE", value_parser = super::role)]
    scope: String,
}

#[derive(Args)]
pub struct EditArgs {
    #[command(flatten)]
    of: NameArgs,
    /// What it says from now on; `-` reads it from standard input, "" empties it
    #[arg(required = true)]
    text: Vec<String>,
    /// Add the text at the end, in place of nothing; what the block has no room for then goes from its beginning
    #[arg(long)]
    add: bool,
}

#[derive(Args)]
pub struct UndoArgs {
    #[command(flatten)]
    of: NameArgs,
    /// Bring back this version
    #[arg(long, value_name = "VERSION")]
    to: Option<u32>,
}

fn name(written: &str) -> Result<String, String> {
    check_name(written).map(|()| written.to_owned())
}

pub async fn dispatch(cx: &Context, command: BlockCommand) -> Result<Exit> {
    match command {
        BlockCommand::List => list(cx).await,
        BlockCommand::Show(of) => show(cx, of).await,
        BlockCommand::Edit(args) => edit(cx, args).await,
        BlockCommand::History(of) => history(cx, of).await,
        BlockCommand::Undo(UndoArgs { of, to }) => undo(cx, of, to).await,
    }
}

async fn list(cx: &Context) -> Result<Exit> {
    let blocks = cx.read(async |store| store.memory_blocks(None).await).await?;
    let none = "there are no blocks; posse memory block edit profile \"<text>\" begins one";
    let titles = ["SCOPE", "NAME", "VERSION", "BYTES", "TEXT"];
    cx.out.list_or_table(
        ("blocks", true),
        &blocks,
        none,
        &titles,
        |Block { scope, name, text, version }| -> Vec<Cell> {
            vec![
                plain(one_line(scope, 24)),
                plain(name.clone()),
                plain(version.to_string()),
                plain(count(text.len() as u64)),
                plain(one_line(text, 200)),
            ]
        },
    )
}

fn no_such(NameArgs { name, scope }: &NameArgs) -> anyhow::Error {
    let what = format!("there is no block {name} of {scope}; posse memory block list shows those there are");
    fail(posse_app::Code::MemoryNotFound, what)
}

async fn show(cx: &Context, of: NameArgs) -> Result<Exit> {
    let scopes = Some(vec![of.scope.clone()]);
    let blocks = cx.read(async |store| store.memory_blocks(scopes).await).await?;
    let found = blocks.into_iter().find(|block| block.name == of.name).ok_or_else(|| no_such(&of))?;
    if cx.out.json {
        return cx.out.document(&found);
    }
    visible(&found.text).lines().try_for_each(|line| cx.out.line(line))?;
    cx.out.hint(standing(&found));
    Ok(Exit::Ok)
}

/// How a block stands, in a line.
fn standing(Block { scope, name, text, version }: &Block) -> String {
    let (has, left) = (plural(text.len() as u64, "byte"), MAX_BYTES.saturating_sub(text.len()));
    format!("{name} of {}, version {version}: {has}, {} left", visible(scope), count(left as u64))
}

fn by_person() -> Origin {
    Origin { author: PERSON.into(), ..Origin::default() }
}

async fn edit(cx: &Context, EditArgs { of, text, add }: EditArgs) -> Result<Exit> {
    if of.name == NOTES && of.scope == SHARED {
        return Err(usage("each persona has notes of its own; say whose with --scope ROLE"));
    }
    let text = read_words("text", text, MAX_BYTES)?.trim().to_owned();
    if text.len() > MAX_BYTES {
        let too_many = has_too_many(text.len(), "byte", MAX_BYTES);
        return Err(usage(format!(
            "the text {too_many}, for it is read with every request; posse memory add saves more"
        )));
    }
    if text.contains('\0') {
        return Err(usage("the text must have no NUL in it"));
    }
    let change = if add { Change::Add(text) } else { Change::Rewrite(text) };
    let edit = BlockEdit { change, origin: by_person(), effect_key: None };
    let store = wire::open_store(&cx.plain_settings()?)?;
    let made = store.edit_block(of.scope, of.name, edit, None, wire::now()).await?;
    let BlockEdited { block, became, left_out } = &made;
    let line = match became {
        Became::Known => format!("it says so already: {}", standing(block)),
        Became::Saved | Became::Again => standing(block),
    };
    let done = cx.out.say(&made, line)?;
    if !left_out.is_empty() {
        cx.out.warn(format!("it had no room any more for:\n{left_out}"));
    }
    Ok(done)
}

async fn history(cx: &Context, of: NameArgs) -> Result<Exit> {
    let (scope, name) = (of.scope.clone(), of.name.clone());
    let versions = cx.read(async |store| store.block_history(scope, name).await).await?;
    if versions.is_empty() {
        return Err(no_such(&of));
    }
    let titles = ["VERSION", "ITEM", "BY", "WRITTEN", "TEXT"];
    let now = wire::now();
    cx.out.list_or_table(("versions", true), &versions, "", &titles, |item| row(item, now))
}

fn row(item: &MemoryItem, now: Millis) -> Vec<Cell> {
    let job = item.origin.job.map(|job| format!(" in job {job}")).unwrap_or_default();
    let forgotten = item.reason.as_deref().map(|reason| format!("(forgotten: {reason}) ")).unwrap_or_default();
    vec![
        plain(item.version.to_string()),
        plain(item.id.to_string()),
        plain(one_line(&format!("{}{job}", item.origin.author), 40)),
        plain(ago(item.created_at, now)),
        plain(one_line(&format!("{forgotten}{}", item.text), 200)),
    ]
}

async fn undo(cx: &Context, of: NameArgs, to: Option<u32>) -> Result<Exit> {
    let store: Arc<dyn Store> = wire::open_existing(&cx.plain_settings()?, || no_such(&of))?;
    let block = store.restore_block(of.scope, of.name, to, wire::now()).await?;
    cx.out.say(&block, standing(&block))
}
