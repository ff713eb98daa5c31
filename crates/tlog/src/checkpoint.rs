//! Checkpoints (C2SP tlog-checkpoint): the origin of a tree, its size and its root, as the text of a signed note.

use super::hash::{self, Hash};
use super::key::SigningKey;
use super::note::Note;

/// State of a tree at a size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Name of the tree.
    pub origin: String,
    /// Number of lines.
    pub size: u64,
    /// Root of the tree.
    pub root: Hash,
}

/// A checkpoint and the note that it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedCheckpoint {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// The note, whose text is that of the checkpoint.
    pub note: Note,
}

impl SignedCheckpoint {
    /// Signs a checkpoint.
    pub fn sign(checkpoint: Checkpoint, key: &SigningKey) -> Self {
        let Checkpoint { origin, size, root } = &checkpoint;
        let note = Note::sign(format!("{origin}\n{size}\n{}\n", hash::encode(root)), key);
        Self { checkpoint, note }
    }

    /// Reads a signed checkpoint, whose signatures are not verified; `None` when the text is none.
    pub fn parse(text: &str) -> Option<Self> {
        let note = Note::parse(text)?;
        let mut lines = note.text.split('\n');
        let origin = lines.next().filter(|origin| !origin.is_empty())?.to_owned();
        let number = lines.next()?;
        let size: u64 = number.parse().ok()?;
        let root = hash::decode(lines.next()?)?;
        // One text for each size: no sign, no leading zeros.
        (size.to_string() == number).then_some(Self { checkpoint: Checkpoint { origin, size, root }, note })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoint_has_the_text_of_the_standard() {
        let (key, _) = SigningKey::generate("example.com/behind-the-sofa").unwrap();
        let root = hash::decode("CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=").unwrap();
        let checkpoint = Checkpoint { origin: key.public().name().to_owned(), size: 20_852_163, root };
        let signed = SignedCheckpoint::sign(checkpoint, &key);
        assert_eq!(
            signed.note.text,
            "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n"
        );
        assert_eq!(SignedCheckpoint::parse(&signed.note.to_string()), Some(signed.clone()));
        for (from, to) in [("20852163", "020852163"), ("20852163", "+1"), ("CsUY", "Cs"), ("example", "\nexample")] {
            assert_eq!(SignedCheckpoint::parse(&signed.note.to_string().replace(from, to)), None, "{to}");
        }
    }

    /// The example of C2SP tlog-cosignature: signed by a log, and cosigned by a witness.
    #[test]
    fn example_of_a_cosigned_checkpoint_is_read_and_written_alike() {
        let text = "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n";
        let signed = "Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=";
        let cosigned =
            "jWbPPwAAAABkGFDLEZMHwSRaJNiIDoe9DYn/zXcrtPHeolMI5OWXEhZCB9dlrDJsX3b2oyin1nPZqhf5nNo0xUe+mbIUBkBIfZ+qnA==";
        let example = format!("{text}\n— example.com/behind-the-sofa {signed}\n— witness.example.com/w1 {cosigned}\n");
        let SignedCheckpoint { checkpoint, note } = SignedCheckpoint::parse(&example).unwrap();
        assert_eq!((checkpoint.origin.as_str(), checkpoint.size), ("example.com/behind-the-sofa", 20_852_163));
        assert_eq!((note.signatures.len(), note.text.as_str(), note.to_string()), (2, text, example));
    }
}
