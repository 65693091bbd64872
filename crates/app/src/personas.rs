//! Who can work jobs, as far as those who enqueue them must know.

use posse_core::job::name::role_name;
use posse_core::persona::PersonaTemplate;

use crate::{Code, Error, Result};

/// The personas of a project.
#[derive(Debug, Clone, Default)]
pub struct Personas {
    usable: Vec<PersonaTemplate>,
    /// Roles whose files are wrong, and what is wrong with each.
    broken: Vec<(String, String)>,
}

impl Personas {
    /// Those that can be used, and what is wrong with the files of others, by role.
    pub fn new(usable: Vec<PersonaTemplate>, broken: Vec<(String, String)>) -> Personas {
        Personas { usable, broken }
    }

    /// The persona that plays `role`.
    pub fn get(&self, role: &str) -> Option<&PersonaTemplate> {
        let role = role_name(role);
        self.usable.iter().find(|persona| persona.role == role)
    }

    /// The roles that some persona plays.
    pub fn roles(&self) -> Vec<String> {
        self.usable.iter().map(|persona| persona.role.clone()).collect()
    }

    /// Fails where nobody plays `role` because its file is wrong, and says what is.
    pub fn not_broken(&self, role: &str) -> Result<()> {
        let (known, role_of) = (self.get(role), role_name(role));
        match self.broken.iter().find(|(broken, _)| *broken == role_of).filter(|_| known.is_none()) {
            Some((_, why)) => {
                Err(Error::new(Code::PersonaInvalid, format!("the persona '{role}' cannot be used: {why}")))
            }
            None => Ok(()),
        }
    }
}
