//! What the command line says of the default model's endpoint.

use std::collections::BTreeMap;

use anyhow::Result;
use clap::Args;

use crate::exit::usage;
use crate::settings::Endpoint;

/// The default model's endpoint, over what the settings and the environment say
#[derive(Args, Clone, Default)]
pub struct EndpointArgs {
    /// The default model's endpoint, up to and including /v1 [env: OPENAI_BASE_URL]
    #[arg(long, value_name = "URL", help_heading = "Endpoint")]
    base_url: Option<String>,
    /// The environment variable that holds its key; "" for no key [OPENAI_API_KEY]
    #[arg(long, value_name = "VARIABLE", help_heading = "Endpoint")]
    api_key_env: Option<String>,
    /// The organisation billed [env: OPENAI_ORG_ID]
    #[arg(long, value_name = "ID", help_heading = "Endpoint")]
    organization: Option<String>,
    /// A further header, "Name: value"; ${VARIABLE} in the value stands for an environment variable; may be given more
    /// than once
    #[arg(long, value_name = "HEADER", help_heading = "Endpoint")]
    header: Vec<String>,
}

impl EndpointArgs {
    /// What was said, checked as far as it can be without asking anybody.
    pub fn checked(self) -> Result<Endpoint> {
        let mut headers = BTreeMap::new();
        for header in self.header {
            let Some((name, value)) = header.split_once(':').filter(|(name, _)| !name.trim().is_empty()) else {
                return Err(usage(format!("--header '{}' must read \"Name: value\"", header.escape_debug())));
            };
            headers.insert(name.trim().to_owned(), value.trim().to_owned());
        }
        let EndpointArgs { base_url, api_key_env, organization, .. } = self;
        Ok(Endpoint { base_url, api_key_env, organization, headers })
    }
}
