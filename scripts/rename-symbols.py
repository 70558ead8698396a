#!/usr/bin/env python3
"""Renames types and functions by their meaning, with rust-analyzer: rename-symbols.py NAMES.tsv

A line is TYPE<TAB>file<TAB>old<TAB>new, or FN; others are left out. What was done with each goes to NAMES.tsv.log. Read it for
"no definition". The source of the standard library must be there ($RUST_LIBRARY), else macros such as assert_eq! hide what
they hold. It goes with renames.tsv when all is renamed.

By hand afterwards: bodies of macro_rules, names in serde attributes, comments (rename-comments.py), cargo fmt.
"""
import json, os, re, subprocess, sys, threading, time, queue
from pathlib import Path
ROOT=Path(__file__).resolve().parent.parent; NAMES=sys.argv[1]; LOG=open(NAMES+'.log','a')
ra=subprocess.Popen(['rust-analyzer'],stdin=subprocess.PIPE,stdout=subprocess.PIPE,stderr=subprocess.DEVNULL,cwd=ROOT)
answers={}; notes=queue.Queue(); lock=threading.Condition()
def send(msg):
    body=json.dumps(msg).encode(); ra.stdin.write(b'Content-Length: %d\r\n\r\n'%len(body)+body); ra.stdin.flush()
def reader():
    while True:
        n=0
        while True:
            line=ra.stdout.readline()
            if not line: return
            line=line.strip()
            if not line: break
            if line.lower().startswith(b'content-length'): n=int(line.split(b':')[1])
        msg=json.loads(ra.stdout.read(n))
        if 'id' in msg and 'method' in msg:
            if msg['method']=='workspace/configuration': send({'jsonrpc':'2.0','id':msg['id'],'result':[CONFIG for _ in msg['params']['items']]})
            else: send({'jsonrpc':'2.0','id':msg['id'],'result':None})
        elif 'id' in msg:
            with lock: answers[msg['id']]=msg; lock.notify_all()
        else: notes.put(msg)
threading.Thread(target=reader,daemon=True).start()
CONFIG={'cargo':{'buildScripts':{'enable':True},'allTargets':True,'features':[],'sysrootSrc':os.environ['RUST_LIBRARY']},'procMacro':{'enable':True},'checkOnSave':False,'files':{'watcher':'client'},'cachePriming':{'enable':False},'rename':{'allowExternalItems':False}}
ids=[0]
def ask(method,params,timeout=600):
    ids[0]+=1; i=ids[0]; send({'jsonrpc':'2.0','id':i,'method':method,'params':params})
    end=time.time()+timeout
    with lock:
        while i not in answers:
            if not lock.wait(max(0.1,end-time.time())) and time.time()>end: raise TimeoutError(method)
        return answers.pop(i)
def tell(method,params): send({'jsonrpc':'2.0','method':method,'params':params})
uri=lambda p: 'file://'+str(p)
ask('initialize',{'processId':os.getpid(),'rootUri':uri(ROOT),'workspaceFolders':[{'uri':uri(ROOT),'name':'x'}],'initializationOptions':CONFIG,'capabilities':{'general':{'positionEncodings':['utf-8']},'window':{'workDoneProgress':True},'workspace':{'configuration':True,'workspaceEdit':{'documentChanges':True}},'textDocument':{'rename':{'prepareSupport':True}},'experimental':{'serverStatusNotification':True}}})
tell('initialized',{})
t=time.time()
while True:
    n=notes.get(timeout=1800)
    if n['method']=='experimental/serverStatus' and n['params'].get('quiescent'):
        print('ready after %.0f s'%(time.time()-t), n['params'].get('health'), n['params'].get('message'),flush=True); break
texts={}; versions={}
def text(path):
    p=Path(path)
    if p not in texts:
        texts[p]=p.read_text(); versions[p]=1
        tell('textDocument/didOpen',{'textDocument':{'uri':uri(p),'languageId':'rust','version':1,'text':texts[p]}})
    return texts[p]
def apply(path,edits):
    b=text(path).encode(); lines=b.split(b'\n'); starts=[0]
    for l in lines: starts.append(starts[-1]+len(l)+1)
    at=lambda pos: starts[pos['line']]+pos['character']
    for e in sorted(edits,key=lambda e:(at(e['range']['start']),at(e['range']['end'])),reverse=True):
        b=b[:at(e['range']['start'])]+e['newText'].encode()+b[at(e['range']['end']):]
    p=Path(path); texts[p]=b.decode(); versions[p]+=1
    p.write_text(texts[p])
    tell('textDocument/didChange',{'textDocument':{'uri':uri(p),'version':versions[p]},'contentChanges':[{'text':texts[p]}]})
def rename(kind,file,old,new):
    p=ROOT/file
    src=text(p)
    if kind=='TYPE': m=re.search(r'^\s*(?:pub(?:\([^)]*\))?\s+)?(?:unsafe\s+)?(?:struct|enum|trait|union)\s+('+old+r')\b',src,re.M) or re.search(r'^(?:pub(?:\([^)]*\))?\s+)?type\s+('+old+r')\b',src,re.M)
    else: m=re.search(r'\bfn\s+('+old+r')\b',src)
    if not m: return 'no definition'
    line=src.count('\n',0,m.start(1)); col=len(src[src.rfind('\n',0,m.start(1))+1:m.start(1)].encode())
    for attempt in range(5):
        r=ask('textDocument/rename',{'textDocument':{'uri':uri(p)},'position':{'line':line,'character':col},'newName':new})
        if r.get('error',{}).get('code')==-32801: continue
        break
    if 'error' in r: return r['error']['message']
    res=r['result'] or {}
    changes={}
    for dc in res.get('documentChanges') or []:
        if 'textDocument' in dc: changes.setdefault(dc['textDocument']['uri'],[]).extend(dc['edits'])
    for u,e in (res.get('changes') or {}).items(): changes.setdefault(u,[]).extend(e)
    if not changes: return 'no edit'
    for u,e in changes.items(): apply(u[len('file://'):],e)
    return '%d files, %d edits'%(len(changes),sum(map(len,changes.values())))
done=0
for row in open(NAMES):
    parts=row.rstrip('\n').split('\t')
    if len(parts)<4 or parts[0] not in ('TYPE','FN'): continue
    t0=time.time(); said=rename(*parts[:4]); done+=1
    print('%s %s -> %s: %s (%.1f s)'%(parts[1],parts[2],parts[3],said,time.time()-t0),file=LOG,flush=True)
print('done',done); ra.kill()
