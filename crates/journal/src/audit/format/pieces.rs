//! Reading a segment line by line, in pieces: memory does not depend on the size of the segment, nor on what is in it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use super::segment::BLOCK;

/// Bytes of the longest line that is kept in memory. The longest lines are headers that list the uses that began in one
/// segment; a longer one is damaged.
const MAX_LINE: usize = 64 << 20;

/// Calls `each` with every whole line of a segment that `read_at` reads, without its newline, and with its
/// offset. Lines longer than [`MAX_LINE`] are left out. Returns the length of the segment, and whether there
/// is a whole line in it.
pub(crate) fn for_each_line(
    mut read_at: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
    mut each: impl FnMut(u64, &[u8]),
) -> io::Result<(u64, bool)> {
    let mut piece = vec![0; BLOCK as usize];
    // The beginning of a line whose end is not read yet, and its offset.
    let mut line = Vec::new();
    let mut line_at = 0_u64;
    let mut at = 0;
    let mut too_long = false;
    loop {
        let read = match read_at(&mut piece, at) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        if read == 0 {
            return Ok((at, line_at > 0));
        }
        for part in piece[..read].split_inclusive(|byte| *byte == b'\n') {
            let ends = part.ends_with(b"\n");
            too_long |= line.len() + part.len() > MAX_LINE;
            match (ends, line.is_empty()) {
                _ if too_long => {}
                // A line within one piece is not copied.
                (true, true) => each(line_at, &part[..part.len() - 1]),
                (true, false) => {
                    line.extend_from_slice(&part[..part.len() - 1]);
                    each(line_at, &line);
                }
                (false, _) => line.extend_from_slice(part),
            }
            at += part.len() as u64;
            if ends {
                line.clear();
                line_at = at;
                too_long = false;
            }
        }
    }
}

/// Reads the line that begins at an offset and has this length.
pub(crate) fn read_line(file: &File, at: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut line = vec![0; length];
    file.read_exact_at(&mut line, at)?;
    Ok(line)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn lines_are_whole_wherever_pieces_end() {
        let mut file = tempfile::tempfile().unwrap();
        let block = BLOCK as usize;
        let lengths = [3, block - 5, 0, block, 3 * block + 1, 7];
        let mut expected = Vec::new();
        let mut at = 0;
        for length in lengths {
            file.write_all(&vec![b'x'; length]).unwrap();
            file.write_all(b"\n").unwrap();
            expected.push((at, length));
            at += length as u64 + 1;
        }
        file.write_all(b"torn").unwrap();
        let mut found = Vec::new();
        let read = for_each_line(|out, at| file.read_at(out, at), |at, line| found.push((at, line.len()))).unwrap();
        assert_eq!((found, read), (expected, (at + 4, true)));
        assert_eq!(read_line(&file, 0, 3).unwrap(), b"xxx");
    }

    #[test]
    fn endless_line_is_not_kept_in_memory() {
        let file = tempfile::tempfile().unwrap();
        // A hole, as a crashed file system may leave one.
        file.set_len(MAX_LINE as u64 + 1000).unwrap();
        let read = for_each_line(|out, at| file.read_at(out, at), |_, _| panic!("there is no line"));
        assert_eq!(read.unwrap(), (MAX_LINE as u64 + 1000, false));
    }
}
