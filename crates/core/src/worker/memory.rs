//! What a job's tools may do with what is remembered: read what is its role's and what is shared, and change its role's
//! alone, for as long as the job is this worker's.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::embedding::search_memory;
use super::fleet::Fleet;
use crate::clock::Millis;
use crate::job::lease::Lease;
use crate::memory::block::{BlockEdit, BlockEdited, CORE_MEMORY_EDIT, name_of, scope_of};
use crate::memory::{
    Forgetting, MemoryFilter, MemoryFound, MemoryId, MemoryItem, MemorySearch, NewMemory, Remembered, Revision, SHARED,
    Tier,
};
use crate::port::{RepositoryError, Result};
use crate::stop::Stop;
use crate::tool::{Memory, ToolError, ToolErrorCategory};

pub(super) struct JobMemory {
    pub role: String,
    pub lease: Lease,
    pub fleet: Arc<Fleet>,
    pub stop: Stop,
}

impl fmt::Debug for JobMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("JobMemory").field(&self.role).finish()
    }
}

impl JobMemory {
    /// What `call` gives. A database that cannot take it now is waited for.
    async fn ask<T, F: Future<Output = Result<T>>>(&self, mut call: impl FnMut() -> F) -> Result<T, ToolError> {
        let stopped = || ToolError::new(ToolErrorCategory::Stopped, "stopped before it was done");
        let mut wait = Duration::from_millis(500);
        loop {
            match call().await {
                Ok(value) => return Ok(value),
                Err(RepositoryError::LeaseLost(_)) => return Err(stopped()),
                Err(RepositoryError::Unavailable(why)) => self.fleet.warn_unavailable(&why),
                Err(RepositoryError::Refused(why)) => return Err(ToolError::new(ToolErrorCategory::Conflict, why)),
                Err(RepositoryError::Misused(why)) => {
                    return Err(ToolError::new(ToolErrorCategory::InvalidArguments, why));
                }
                Err(other) => return Err(ToolError::new(ToolErrorCategory::Failed, other.to_string())),
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                _ = self.stop.stopped() => return Err(stopped()),
            }
            wait = (wait * 2).min(Duration::from_secs(10));
        }
    }

    /// Refuses what is not the role's own.
    async fn own(&self, id: MemoryId) -> Result<(), ToolError> {
        match self.item(id).await? {
            None => Err(ToolError::new(
                ToolErrorCategory::NotFound,
                format!("there is no item {id}; memory_search tells the numbers of those there are"),
            )),
            Some(item) if item.scope != self.role => Err(ToolError::new(
                ToolErrorCategory::PermissionDenied,
                format!("item {id} is {SHARED}, and only people change such; save what you know as an item of its own"),
            )),
            Some(item) => match name_of(&item) {
                Some(name) => Err(ToolError::new(
                    ToolErrorCategory::PermissionDenied,
                    format!("item {id} is a version of the block {name}, which {CORE_MEMORY_EDIT} changes"),
                )),
                None => Ok(()),
            },
        }
    }
}

#[async_trait]
impl Memory for JobMemory {
    async fn save(&self, new: NewMemory) -> Result<Remembered, ToolError> {
        let new = NewMemory { scope: self.role.clone(), ..new };
        let saved =
            self.ask(|| self.fleet.store.remember(vec![new.clone()], Some(self.lease), self.fleet.clock.now())).await?;
        saved.into_iter().next().ok_or_else(|| ToolError::new(ToolErrorCategory::Failed, "nothing was saved"))
    }

    async fn revise(&self, id: MemoryId, to: Revision) -> Result<Remembered, ToolError> {
        self.own(id).await?;
        self.ask(|| self.fleet.store.revise_memory(id, to.clone(), Some(self.lease), self.fleet.clock.now())).await
    }

    async fn forget(&self, id: MemoryId, how: Forgetting) -> Result<bool, ToolError> {
        self.own(id).await?;
        let now = self.fleet.clock.now();
        let forgotten =
            self.ask(|| self.fleet.store.forget_memory(vec![id], how.clone(), Some(self.lease), now)).await?;
        Ok(forgotten > 0)
    }

    async fn edit_block(&self, name: &str, edit: BlockEdit) -> Result<BlockEdited, ToolError> {
        let (scope, name) = (scope_of(name, &self.role).to_owned(), name.to_owned());
        let edit = || {
            let (scope, name, now) = (scope.clone(), name.clone(), self.fleet.clock.now());
            self.fleet.store.edit_block(scope, name, edit.clone(), Some(self.lease), now)
        };
        self.ask(edit).await
    }

    async fn item(&self, id: MemoryId) -> Result<Option<MemoryItem>, ToolError> {
        let found = self.ask(|| self.fleet.store.memory_item(id)).await?;
        Ok(found.filter(|item| item.scope == self.role || item.scope == SHARED))
    }

    async fn search(&self, what: MemorySearch) -> Result<MemoryFound, ToolError> {
        let scopes = Some(vec![self.role.clone(), SHARED.to_owned()]);
        // Blocks it has before it.
        let tier = Some(Tier::Archival);
        let what = MemorySearch { filter: MemoryFilter { scopes, tier, ..what.filter }, ..what };
        self.ask(|| search_memory(&*self.fleet.store, self.fleet.questions.as_ref(), what.clone())).await
    }

    fn now(&self) -> Millis {
        self.fleet.clock.now()
    }
}
