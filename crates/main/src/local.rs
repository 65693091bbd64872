//! The seam to the local model: a model file run on this machine by `posse-local`.

use std::sync::Arc;

use posse_core::model::{Model, ModelError, ModelErrorKind};

use crate::settings::FileModel;

/// The name of the local model where the settings give it none.
pub const NAME: &str = "local";

/// The model behind `[models.NAME] kind = "local"`.
pub fn model(name: &str, _table: &FileModel) -> Result<Arc<dyn Model>, ModelError> {
    Err(ModelError {
        kind: ModelErrorKind::Unauthorized,
        message: format!(
            "the model '{name}' runs on this machine and its file is not here yet: fetch it with posse model pull, \
             or set OPENAI_API_KEY (and OPENAI_BASE_URL) to use a provider"
        ),
        retry_after: None,
        context_window: None,
        failed_tries: Vec::new(),
    })
}
