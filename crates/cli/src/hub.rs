//! `lapidary pull`, `list` and `rm`, and models that are named as the hub names them.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use clap::Args;
use indicatif::ProgressBar;
use lapidary_format::Source;
use lapidary_hub::{
    Cache, Event, Hub, HubName, Options, PullError, Pulled, Removed, Stored, StoredFile, label,
};
use serde_json::json;

use crate::args::ModelArgs;
use crate::engine::bar;
use crate::failure::Failure;
use crate::info::size;
use crate::interrupt::Interrupt;
use crate::model::find;

/// Where the hub is.
#[derive(Args, Clone, Debug)]
pub(crate) struct HubArgs {
    /// Address of the hub [default: HF_ENDPOINT, else the public hub].
    #[arg(long, value_name = "URL")]
    pub(crate) hub_url: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct PullArgs {
    /// The model: owner/repo, owner/repo:QUANT or owner/repo@revision:QUANT.
    #[arg(value_name = "NAME")]
    pub(crate) name: HubName,
    #[command(flatten)]
    pub(crate) hub: HubArgs,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ListArgs {
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct RemoveArgs {
    /// What to remove: owner/repo with everything that is here of it, or owner/repo:QUANT.
    #[arg(value_name = "NAME")]
    pub(crate) name: HubName,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn pull(args: &PullArgs) -> Result<u8, Failure> {
    // From here on Ctrl-C ends the program with its own status; what has arrived is kept.
    let _interrupt = Interrupt::listen()?;
    let pulled = fetch(&args.name, &args.hub)?;
    let path = |path: &PathBuf| path.display().to_string();
    if args.json {
        let files: Vec<_> = pulled.files.iter().map(path).collect();
        let mmproj = pulled.mmproj.as_ref().map(path);
        println!("{}", json!({ "model": path(&pulled.model), "mmproj": mmproj, "files": files }));
    } else {
        println!("{}", pulled.model.display());
    }
    Ok(0)
}

pub(crate) fn list(args: &ListArgs) -> Result<u8, Failure> {
    let cache = cache()?;
    let stock = cache.stock().map_err(failed)?;
    if args.json {
        let models: Vec<_> = stock.iter().map(stored_json).collect();
        println!("{}", json!({ "cache": cache.root().display().to_string(), "models": models }));
        return Ok(0);
    }
    for stored in &stock {
        for (name, bytes) in lines(stored) {
            println!("{:>10}  {name}", size(bytes));
        }
    }
    if stock.is_empty() {
        eprintln!("note: nothing has been pulled into {}", cache.root().display());
    }
    Ok(0)
}

pub(crate) fn remove(args: &RemoveArgs) -> Result<u8, Failure> {
    let Removed { files, freed } = cache()?.remove(&args.name).map_err(failed)?;
    if args.json {
        println!("{}", json!({ "files": files, "freed_bytes": freed }));
    } else {
        files.iter().for_each(|file| println!("removed {}/{file}", args.name.repo));
        println!("{} freed", size(freed));
    }
    Ok(0)
}

/// A repository's models as they are typed, with their bytes: parts of a file are one, and what is
/// no GGUF file is listed under the repository's name.
fn lines(stored: &Stored) -> Vec<(String, u64)> {
    let mut found: Vec<(String, u64)> = Vec::new();
    for file in &stored.files {
        let name = match file.path.to_ascii_lowercase().ends_with(".gguf") {
            true => format!("{}:{}", stored.repo, label(&file.path)),
            false => stored.repo.to_string(),
        };
        match found.iter_mut().find(|(known, _)| *known == name) {
            Some((_, bytes)) => *bytes += file.bytes,
            None => found.push((name, file.bytes)),
        }
    }
    if stored.unfinished > 0 {
        found.push((format!("{} (unfinished)", stored.repo), stored.unfinished));
    }
    found
}

fn stored_json(stored: &Stored) -> serde_json::Value {
    let file = |file: &StoredFile| json!({ "path": file.path, "at": file.at.display().to_string(), "bytes": file.bytes });
    json!({
        "repo": stored.repo.to_string(),
        "files": stored.files.iter().map(file).collect::<Vec<_>>(),
        "unfinished_bytes": stored.unfinished,
    })
}

/// The model that was asked for; fetched first if the hub's name for it was typed and it is not
/// here. Says so on standard error.
pub(crate) fn find_or_pull(args: &ModelArgs) -> Result<Source, Failure> {
    let typed = args.model.as_deref();
    let Some(name) = typed.and_then(hub_name) else { return find(typed) };
    if cache()?.find(&name).is_some() || offline() {
        return find(typed);
    }
    eprintln!("note: {name} is not here; fetching it from {}", url(&args.hub));
    find(Some(&fetch(&name, &args.hub)?.model))
}

/// Where the model lies that was typed: a path, or the hub's name for something in the cache.
pub(crate) fn locate(typed: &Path) -> Result<PathBuf, Failure> {
    let Some(name) = hub_name(typed) else { return Ok(typed.to_owned()) };
    let missing = || {
        let message = format!(
            "{name} is neither a file nor in the cache; fetch it with `lapidary pull {name}`"
        );
        Failure::work("not_pulled", message)
    };
    Ok(cache()?.find(&name).ok_or_else(missing)?.model)
}

/// The hub's name, where what was typed is no path: nothing lies there, and it does not end as
/// files do.
fn hub_name(typed: &Path) -> Option<HubName> {
    let name: HubName = typed.to_str()?.parse().ok()?;
    let ending = Path::new(name.repo.repo()).extension().and_then(|ending| ending.to_str());
    let is_file = matches!(ending, Some("gguf" | "safetensors" | "json"));
    (!is_file && !typed.exists()).then_some(name)
}

fn fetch(name: &HubName, args: &HubArgs) -> Result<Pulled, Failure> {
    let url = url(args);
    let options = Options { token: token(), proxy: proxy(&url), ..Options::new(url) };
    let hub = Hub::new(&options, cache()?).map_err(failed)?;
    let shown = Shown::default();
    let pulled = hub.pull(name, &|event| shown.show(event));
    shown.finish();
    pulled.map_err(failed)
}

fn failed(error: PullError) -> Failure {
    Failure::work("hub", error)
}

/// A bar per file.
#[derive(Default)]
struct Shown {
    now: Mutex<Option<(String, ProgressBar)>>,
}

impl Shown {
    fn show(&self, event: Event<'_>) {
        let (file, at) = match event {
            Event::Waiting { file } => {
                eprintln!("note: another process is fetching {file}; waiting for it");
                return;
            }
            Event::Got { file, bytes, total } => (file, (bytes, total)),
        };
        let mut now = self.now.lock().expect("drawing does not panic");
        match &*now {
            Some((known, bar)) if known == file => bar.set_position(at.0.max(bar.position())),
            _ => {
                if let Some((_, done)) = now.take() {
                    done.finish_and_clear();
                }
                let bar =
                    bar("{msg} {bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left");
                bar.set_message(file.to_owned());
                bar.set_length(at.1);
                bar.set_position(at.0);
                bar.reset_eta();
                *now = Some((file.to_owned(), bar));
            }
        }
    }

    fn finish(&self) {
        if let Some((_, bar)) = &*self.now.lock().expect("drawing does not panic") {
            bar.finish_and_clear();
        }
    }
}

/// What the environment says, if it says anything.
#[expect(clippy::disallowed_methods, reason = "the command line is where the environment is read")]
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

fn url(args: &HubArgs) -> String {
    let told = args.hub_url.clone().or_else(|| variable("HF_ENDPOINT"));
    told.unwrap_or_else(|| Options::HUGGING_FACE.to_owned())
}

/// Whether the environment forbids asking the hub.
fn offline() -> bool {
    let yes = |value: String| matches!(&*value.to_ascii_lowercase(), "1" | "true" | "yes" | "on");
    variable("HF_HUB_OFFLINE").is_some_and(yes)
}

/// The folder that other programs of the hub use as well.
fn home() -> Option<PathBuf> {
    let told = variable("HF_HOME").map(PathBuf::from);
    let caches = || variable("XDG_CACHE_HOME").map(|caches| Path::new(&caches).join("huggingface"));
    let user = || variable("HOME").or_else(|| variable("USERPROFILE"));
    told.or_else(caches).or_else(|| Some(Path::new(&user()?).join(".cache/huggingface")))
}

/// The cache that Python's `huggingface_hub` would use.
fn cache() -> Result<Cache, Failure> {
    let folder = variable("HF_HUB_CACHE").map(PathBuf::from);
    let folder = folder.or_else(|| Some(home()?.join("hub")));
    let unknown = || Failure::usage("no_cache", "there is no home folder; set HF_HUB_CACHE");
    Ok(Cache::at(folder.ok_or_else(unknown)?))
}

/// From HF_TOKEN, or from the file that `hf auth login` writes.
fn token() -> Option<String> {
    let file =
        || variable("HF_TOKEN_PATH").map(PathBuf::from).or_else(|| Some(home()?.join("token")));
    let written = || std::fs::read_to_string(file()?).ok();
    let token = variable("HF_TOKEN").or_else(written)?;
    Some(token.trim().to_owned()).filter(|token| !token.is_empty())
}

/// The proxy for an address, unless NO_PROXY names its host or a domain that it belongs to.
fn proxy(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let host = rest.split(['/', ':']).next()?;
    let either = |name: &str| variable(name).or_else(|| variable(&name.to_ascii_uppercase()));
    let direct = either("no_proxy").is_some_and(|names| {
        let names = names
            .split(',')
            .map(|name| name.trim().trim_start_matches("*").trim_start_matches('.'));
        let mut names = names.filter(|name| !name.is_empty());
        names.any(|name| host == name || host.ends_with(&format!(".{name}")))
    });
    let told = either(&format!("{scheme}_proxy")).or_else(|| either("all_proxy"));
    told.filter(|_| !direct)
}
