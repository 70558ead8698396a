#!/usr/bin/env python3
"""After rename-symbols.py: old names of types in code spans of comments and in debug_struct texts. rename-comments.py NAMES.tsv

It guesses where a name had several meanings: read what it changed. It goes with renames.tsv when all is renamed.
"""
import re,sys,collections
from pathlib import Path
R=Path(__file__).resolve().parent.parent
rows=[]
for f in sys.argv[1:]:
    rows+=[l.rstrip('\n').split('\t') for l in open(f) if l.startswith('TYPE')]
# only those done
by=collections.defaultdict(list)
for r in rows: by[r[2]].append((r[1],r[3]))
allold=collections.defaultdict(list)
for l in open(R/'scripts/renames.tsv'):
    r=l.rstrip('\n').split('\t')
    if r[0]=='TYPE': allold[r[2]].append((r[1],r[3]))
defs=collections.Counter()
files=[p for p in R.rglob('*.rs') if not {'.tools','target','.git'}&set(p.parts)]
for p in files:
    for m in re.finditer(r'\b(?:struct|enum|trait|union|type)\s+([A-Z]\w*)',p.read_text()): defs[m[1]]+=1
def choose(old,rel):
    c=by.get(old)
    if not c: return None
    same=[n for f,n in c if f==rel]
    if same: return same[0]
    if re.search(r'\b'+old+r'\b',code(cache[rel])): return None
    # imported in this file?
    txt=cache[rel]
    used=[n for f,n in c if re.search(r'\b'+n+r'\b',code(txt))]
    if len(used)==1: return used[0]
    d=rel.rsplit('/',1)[0]
    near=[n for f,n in c if f.startswith(d+'/') or f==d+'.rs']
    if len(near)==1: return near[0]
    crate=rel.split('/')[0]
    inc=[n for f,n in c if f.split('/')[0]==crate]
    if len(inc)==1 : return inc[0]
    if len(c)==1 and defs[old]==0 and len(allold[old])==1: return c[0][1]
    return None
def code(t): return re.sub(r'//[^\n]*','',t)
cache={}
n=0
names='|'.join(sorted(map(re.escape,by),key=len,reverse=True))
span=re.compile(r'`[^`\n]*`|\[[A-Z]\w*\]')
word=re.compile(r'(?<![\w"-])('+names+r')(?![\w"-])')
left=[]
def in_span(s,rel):
    def one(m):
        if re.search(r'\b[A-Z]\w*::$',s[:m.start()]): return m[1]
        new=choose(m[1],rel)
        if new is None: left.append((rel,s)); return m[1]
        return new
    # only spans that look like code paths: Old, Old::x, a::Old, Old { x }, &Old, Old<..>, [Old]
    t=s.strip('`[]')
    if not re.fullmatch(r'[&\w:<>, ()\[\]{}=.]*',t): return s
    return word.sub(one,s)
for p in files:
    rel=str(p.relative_to(R)); t=cache[rel]=p.read_text()
    out=[]
    for line in t.split('\n'):
        m=re.match(r'(.*?)(//.*)$',line)
        if m and '"' not in m[1]:
            line=m[1]+span.sub(lambda x:in_span(x[0],rel),m[2])
        out.append(line)
    u='\n'.join(out)
    def dbg(m):
        return m[0]
    # debug_struct
    pos=0; parts=[]
    for m in re.finditer(r'Debug for (\w+)(?:<[^>]*>)?[^{]*\{(?:.|\n){0,200}?debug_(?:struct|tuple)\("(\w+)"\)',u):
        if m[1]!=m[2]:
            parts.append((m.start(2),m.end(2),m[1]))
    for a,b,x in reversed(parts): u=u[:a]+x+u[b:]
    if u!=t: p.write_text(u); n+=1
print('files',n); 
for x in left[:60]: print('left',x)
