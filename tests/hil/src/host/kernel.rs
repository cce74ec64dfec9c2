//! Finds a kernel's modules, what they depend on, and unpacks them.

use std::collections::HashMap;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A kernel module, uncompressed.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) name: String,
    pub(crate) content: Vec<u8>,
}

/// The modules of `wanted` and all that they depend on, in the order in which they must be loaded.
/// What is not there as a module is taken to be built in.
pub(crate) fn modules(kernel: &Path, wanted: &[&str]) -> Result<Vec<Module>, Box<dyn Error>> {
    let mut files = HashMap::new();
    list(&modules_folder(kernel)?.join("kernel"), &mut files)?;
    let mut loaded = Vec::new();
    for name in wanted {
        load(name, &files, &mut loaded)?;
    }
    Ok(loaded)
}

/// `BOOT/vmlinuz-VERSION` has its modules in `BOOT/../lib/modules/VERSION`.
fn modules_folder(kernel: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let kernel = kernel
        .canonicalize()
        .map_err(|e| format!("{}: {e}", kernel.display()))?;
    let name = kernel
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let root = kernel.parent().and_then(Path::parent);
    let (Some(version), Some(root)) = (name.strip_prefix("vmlinuz-"), root) else {
        return Err(format!("{}: not a .../boot/vmlinuz-VERSION", kernel.display()).into());
    };
    ["lib/modules", "usr/lib/modules"]
        .iter()
        .map(|place| root.join(place).join(version))
        .find(|folder| folder.is_dir())
        .ok_or_else(|| format!("no lib/modules/{version} below {}", root.display()).into())
}

/// Names in file names and in dependencies differ in dashes and underscores.
fn key(name: &str) -> String {
    name.replace('-', "_")
}

fn list(folder: &Path, files: &mut HashMap<String, PathBuf>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            list(&path, files)?;
        } else if let Some(name) = path.file_name().and_then(|name| name.to_str())
            && let Some((name, _)) = name.split_once(".ko")
        {
            files.insert(key(name), path);
        }
    }
    Ok(())
}

fn load(
    name: &str,
    files: &HashMap<String, PathBuf>,
    loaded: &mut Vec<Module>,
) -> Result<(), Box<dyn Error>> {
    let name = key(name);
    let Some(file) = files.get(&name) else {
        return Ok(());
    };
    if loaded.iter().any(|module| module.name == name) {
        return Ok(());
    }
    let content = unpack(file)?;
    for dependency in depends(&content) {
        load(&dependency, files, loaded)?;
    }
    loaded.push(Module { name, content });
    Ok(())
}

fn unpack(file: &Path) -> Result<Vec<u8>, Box<dyn Error>> {
    let tool = match file.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => return Ok(fs::read(file)?),
    };
    let output = Command::new(tool).arg("-dc").arg(file).output();
    let output = output.map_err(|e| format!("{tool}: {e}"))?;
    if !output.status.success() {
        return Err(format!("{tool} cannot unpack {}", file.display()).into());
    }
    Ok(output.stdout)
}

/// A module names the modules that it needs in its `.modinfo` section: `depends=a,b`, between zeros.
fn depends(content: &[u8]) -> Vec<String> {
    content
        .split(|byte| *byte == 0)
        .find_map(|text| text.strip_prefix(b"depends="))
        .map(|list| String::from_utf8_lossy(list).into_owned())
        .unwrap_or_default()
        .split(',')
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Modules come after what they depend on, once each, and a built-in one is passed over.
    #[test]
    fn dependencies_come_first() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("lib/modules/6.1/kernel/drivers");
        fs::create_dir_all(&folder).unwrap();
        fs::create_dir(root.path().join("boot")).unwrap();
        let kernel = root.path().join("boot/vmlinuz-6.1");
        fs::write(&kernel, "").unwrap();
        fs::write(
            folder.join("top-one.ko"),
            "x\0depends=base,middle_one,builtin\0y",
        )
        .unwrap();
        fs::write(folder.join("middle-one.ko"), "\0depends=base\0").unwrap();
        fs::write(folder.join("base.ko"), "\0depends=\0").unwrap();
        let found = modules(&kernel, &["top_one", "base", "absent"]).unwrap();
        let names: Vec<_> = found.iter().map(|module| module.name.as_str()).collect();
        assert_eq!(names, ["base", "middle_one", "top_one"]);
    }
}
