use std::io;
use std::path::PathBuf;

/// A temporary folder of this process alone, removed with it unless it is killed.
pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// A new folder that nobody else may enter.
    pub(crate) fn temporary() -> io::Result<Self> {
        let name = format!(
            "posta-signing-{}-{:08x}",
            std::process::id(),
            rand::random::<u32>()
        );
        let path = std::env::temp_dir().join(name);
        let mut builder = std::fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&path)?;
        Ok(Self { path })
    }

    /// The path of a file in it.
    pub(crate) fn file(&self, name: &str) -> String {
        self.path.join(name).to_string_lossy().into_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is left to the system's own cleaning of temporary files.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
