//! The texts of messages that are not decided yet: `agents/<id>/messages/<message>`, one file each.

use std::path::PathBuf;

use protocol::ids::{AgentId, MessageId};
use protocol::message::MessageText;

use super::agents::AgentFolders;
use super::file::{StateError, replace};

impl AgentFolders {
    fn text(&self, agent: AgentId, message: MessageId) -> PathBuf {
        self.agent(agent).join("messages").join(message.to_string())
    }

    /// # Errors
    /// What the file system says.
    pub fn keep_text(
        &self,
        agent: AgentId,
        message: MessageId,
        text: &MessageText,
    ) -> Result<(), StateError> {
        let path = self.text(agent, message);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(StateError::io("make", folder))?;
        }
        replace(&path, text.0.as_bytes())
    }

    /// # Errors
    /// What the file system says.
    pub fn read_text(&self, agent: AgentId, message: MessageId) -> Result<Vec<u8>, StateError> {
        let path = self.text(agent, message);
        std::fs::read(&path).map_err(StateError::io("read", &path))
    }

    /// Takes the text away; that it is not there is as good.
    ///
    /// # Errors
    /// What the file system says.
    pub fn forget_text(&self, agent: AgentId, message: MessageId) -> Result<(), StateError> {
        let path = self.text(agent, message);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(StateError::io("remove", &path)(error))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_as_it_was_kept_until_it_is_forgotten() {
        let state = tempfile::tempdir().unwrap();
        let folders = AgentFolders::open(state.path()).unwrap();
        let (agent, message) = (AgentId::from_parts(1, 0), MessageId::from_parts(2, 0));
        let text = MessageText("é\n\t;".to_owned());
        folders.keep_text(agent, message, &text).unwrap();
        assert_eq!(folders.read_text(agent, message).unwrap(), text.0.as_bytes());
        folders.forget_text(agent, message).unwrap();
        folders.forget_text(agent, message).unwrap();
        assert!(folders.read_text(agent, message).is_err());
    }
}
