//! Commands, and running those that are committed together.

use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant};

use diesel::prelude::*;
use posse_core::clock::Millis;
use posse_core::port::{RepositoryError, Result};
use posse_core::store::claim::Cursors;
use posse_core::store::enqueue::Enqueue;
use posse_core::store::finish::Finish;
use posse_core::store::seal::Keys;
use posse_core::store::{Answer, Fault, Outcome, Tx, Verb};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::fault::{Kind, describe, kind, met};
use crate::literal::{Release, RollbackTo, Savepoint};
use crate::rows::Rows;

/// Most commands in one transaction.
const BATCH_COMMANDS: usize = 512;
/// Most bytes of content in one transaction, so that one large write does not delay the answers of
/// many small ones by much. A single command may be larger.
const BATCH_BYTES: usize = 8 << 20;

/// What a command sees: the rows, inside the batch's transaction.
pub(crate) type Transaction<'a> = Tx<'a, Rows>;

/// What of a wait is made up for, so that a lease does not begin with what others held the lock for.
const NOTABLE_WAIT: Duration = Duration::from_secs(1);

/// A wait as commands see it; see [`Tx::late_ms`].
fn late_ms(waited: Duration) -> Millis {
    if waited < NOTABLE_WAIT { 0 } else { Millis::try_from(waited.as_millis()).unwrap_or(0) }
}

pub(super) struct Command {
    /// Roughly the bytes it writes.
    pub bytes: usize,
    /// Whether its effect means nothing after a restart of the machine.
    pub passing: bool,
    pub what: What,
}

pub(super) enum What {
    Enqueue(Call<Enqueue>),
    Finish(Call<Finish>),
    Alone(Box<dyn Piece>),
}

pub(super) struct Call<V: Verb> {
    asks: Vec<V::Ask>,
    answers: Vec<Answer<V>>,
    answer: oneshot::Sender<Vec<Answer<V>>>,
    _permit: OwnedSemaphorePermit,
}

impl<V: Verb> Call<V> {
    pub fn new(asks: Vec<V::Ask>, permit: OwnedSemaphorePermit, answer: oneshot::Sender<Vec<Answer<V>>>) -> Call<V> {
        Call { asks, answers: Vec::new(), answer, _permit: permit }
    }

    fn fail(&mut self, error: &RepositoryError) {
        self.answers = self.asks.iter().map(|_| Err(error.clone())).collect();
    }

    fn answer(self) {
        // A caller that is gone wants no answer.
        let _ = self.answer.send(self.answers);
    }
}

/// One piece of work and its caller, whatever its type.
pub(super) trait Piece: Send {
    fn abandoned(&self) -> bool;
    fn run(&mut self, tx: &mut Transaction<'_>) -> Outcome<()>;
    fn fail(&mut self, error: RepositoryError);
    fn answer(self: Box<Self>);
}

/// Work that is not shared with other callers.
pub(super) struct Alone<T, F> {
    work: F,
    asked_at: Instant,
    result: Option<Result<T>>,
    answer: oneshot::Sender<Result<T>>,
    _permit: OwnedSemaphorePermit,
}

impl<T, F> Alone<T, F> {
    pub fn new(work: F, permit: OwnedSemaphorePermit, answer: oneshot::Sender<Result<T>>) -> Alone<T, F> {
        Alone { work, asked_at: Instant::now(), result: None, answer, _permit: permit }
    }
}

impl<T, E, F> Piece for Alone<T, F>
where
    T: Send,
    E: Into<Fault>,
    F: FnMut(&mut Transaction<'_>) -> Result<T, E> + Send,
{
    fn abandoned(&self) -> bool {
        self.answer.is_closed()
    }

    fn run(&mut self, tx: &mut Transaction<'_>) -> Outcome<()> {
        tx.late_ms = late_ms(self.asked_at.elapsed());
        self.result = Some(Ok((self.work)(tx).map_err(Into::into)?));
        Ok(())
    }

    fn fail(&mut self, error: RepositoryError) {
        self.result = Some(Err(error));
    }

    fn answer(self: Box<Self>) {
        // Without a result it was skipped, and nobody waits. A caller that is gone wants no answer.
        if let Some(result) = self.result {
            let _ = self.answer.send(result);
        }
    }
}

/// Commands that are committed together. Their callers wait side by side, so any order is right.
#[derive(Default)]
pub(super) struct Batch {
    enqueues: Vec<Call<Enqueue>>,
    finishes: Vec<Call<Finish>>,
    others: Vec<Box<dyn Piece>>,
    bytes: usize,
    lasting: bool,
}

impl Batch {
    /// The commands that wait, within a batch's limits.
    pub fn collect(waiting: &mut VecDeque<Command>) -> Batch {
        let mut batch = Batch::default();
        while batch.len() < BATCH_COMMANDS
            && batch.bytes < BATCH_BYTES
            && let Some(command) = waiting.pop_front()
        {
            batch.add(command);
        }
        batch
    }

    pub fn add(&mut self, command: Command) {
        self.bytes += command.bytes;
        self.lasting |= !command.passing;
        match command.what {
            What::Enqueue(call) => self.enqueues.push(call),
            What::Finish(call) => self.finishes.push(call),
            What::Alone(piece) => self.others.push(piece),
        }
    }

    /// The command of a batch that has one.
    pub fn into_command(mut self) -> Option<Command> {
        let enqueue = self.enqueues.pop().map(What::Enqueue);
        let what = enqueue.or(self.finishes.pop().map(What::Finish)).or(self.others.pop().map(What::Alone))?;
        Some(Command { bytes: self.bytes, passing: !self.lasting, what })
    }

    /// Roughly the bytes that are written.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether any of it is to survive a power cut.
    pub fn is_lasting(&self) -> bool {
        self.lasting
    }

    pub fn len(&self) -> usize {
        self.enqueues.len() + self.finishes.len() + self.others.len()
    }

    pub fn fail(&mut self, error: &RepositoryError) {
        self.enqueues.iter_mut().for_each(|call| call.fail(error));
        self.finishes.iter_mut().for_each(|call| call.fail(error));
        self.others.iter_mut().for_each(|piece| piece.fail(error.clone()));
    }

    pub fn answer(self) {
        self.enqueues.into_iter().for_each(Call::answer);
        self.finishes.into_iter().for_each(Call::answer);
        self.others.into_iter().for_each(Piece::answer);
    }
}

/// One try at a batch, inside its transaction.
pub(super) struct Try<'a> {
    pub connection: &'a mut SqliteConnection,
    pub path: &'a Path,
    pub keys: &'a Keys,
    pub cursors: &'a mut Cursors,
    /// Whether each piece is to be undone by itself when it fails.
    pub apart: bool,
    /// Whether workers are to be notified once it is committed.
    pub notifies: bool,
}

impl Try<'_> {
    /// Runs the batch. False when something failed and is not `apart`; then all is to be undone.
    /// An error is about the whole batch.
    pub fn run(&mut self, batch: &mut Batch) -> Result<bool, diesel::result::Error> {
        if !self.all::<Enqueue>(&mut batch.enqueues)? || !self.all::<Finish>(&mut batch.finishes)? {
            return Ok(false);
        }
        for piece in batch.others.iter_mut().filter(|piece| !piece.abandoned()) {
            match self.piece(|tx| piece.run(tx))? {
                Some(Ok(())) => {}
                Some(Err(error)) => piece.fail(error),
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    fn all<V: Verb>(&mut self, calls: &mut [Call<V>]) -> Result<bool, diesel::result::Error> {
        let mut calls: Vec<_> = calls.iter_mut().filter(|call| !call.answer.is_closed()).collect();
        if self.apart {
            for call in calls {
                call.answers.clear();
                for ask in &call.asks {
                    match self.piece(|tx| V::run(tx, &[ask]))? {
                        Some(Ok(answers)) => call.answers.extend(answers),
                        Some(Err(error)) => call.answers.push(Err(error)),
                        None => return Ok(false),
                    }
                }
            }
            return Ok(true);
        }
        let asks: Vec<_> = calls.iter().flat_map(|call| &call.asks).collect();
        if asks.is_empty() {
            return Ok(true);
        }
        let Some(Ok(answers)) = self.piece(|tx| V::run(tx, &asks))? else { return Ok(false) };
        let mut answers = answers.into_iter();
        for call in &mut calls {
            call.answers = answers.by_ref().take(call.asks.len()).collect();
        }
        Ok(true)
    }

    /// Runs one piece of the batch. When it fails: `None`, or if it is `apart` its error, and then
    /// nothing of it was kept.
    fn piece<T, E: Into<Fault>>(
        &mut self,
        work: impl FnOnce(&mut Transaction<'_>) -> Result<T, E>,
    ) -> Result<Option<Result<T>>, diesel::result::Error> {
        if self.apart {
            Savepoint.execute(self.connection)?;
        }
        let mut notifies = false;
        let tx = &mut Transaction::new(Rows::of(self.connection), self.keys, self.cursors, &mut notifies);
        let result = match work(tx).map_err(Into::into) {
            Ok(value) => Ok(value),
            Err(fault) => Err(for_caller(fault, self.path)?),
        };
        if result.is_err() && !self.apart {
            return Ok(None);
        }
        match &result {
            Ok(_) => self.notifies |= notifies,
            Err(_) => drop(RollbackTo.execute(self.connection)?),
        }
        if self.apart {
            Release.execute(self.connection)?;
        }
        Ok(Some(result))
    }
}

/// What a fault says to its caller alone; an error where it is about the whole batch.
fn for_caller(fault: Fault, path: &Path) -> Result<RepositoryError, diesel::result::Error> {
    match fault {
        Fault::Refused(error) => Ok(error),
        Fault::Db(error) => match met(error) {
            error if kind(&error) == Kind::Statement => Ok(describe(&error, path)),
            error => Err(error),
        },
    }
}
