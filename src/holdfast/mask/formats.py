"""What keys and tokens look like, from what their issuers publish about them.

Each entry is a kind and the shapes of its tokens, one in a line.  A shape needs nothing around it:
it begins with what only such a token begins with; those that have their mark elsewhere are in
`MARKED`, by the mark.  Lengths are lower bounds, for issuers lengthen
their tokens; the whole run is taken.
"""

from __future__ import annotations

import re

_SHAPES = r"""
aws:
    (?:AKIA|ASIA|ABIA|ACCA|A3T[A-Z0-9])[A-Z0-9]{16}
    ABSK[A-Za-z0-9+/]{80,}={0,2}
    bedrock-api-key-[A-Za-z0-9+/=]{20,}
    amzn\.mws\.[0-9a-f]{8}-[0-9a-f-]{27}
    amzn1\.oa2-cs\.v1\.[0-9a-f]{48,}
github:
    gh[oprsu]_[A-Za-z0-9_]{30,}
    github_pat_[A-Za-z0-9_]{30,}
gitlab:
    gl(?:pat|ptt|dt|rt|rtr|cbt|ft|agent|imt|soat|oas|ffct|wt)-[A-Za-z0-9_-]{16,}(?:\.[0-9a-z.]{2,})?
    GR1348941[A-Za-z0-9_-]{16,}
slack:
    xox[abcdeoprs]-[A-Za-z0-9%+/_\\-]{8,}
    xoxe\.xox[bp]-[A-Za-z0-9-]{20,}
    xapp-[0-9]+-[A-Za-z0-9-]{20,}
    hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9+/_-]{20,}
google:
    AIza[A-Za-z0-9_-]{30,}
    GOCSPX-[A-Za-z0-9_-]{20,}
    ya29\.[A-Za-z0-9_-]{20,}
    AAAA[A-Za-z0-9_-]{7}:APA91b[A-Za-z0-9_-]{100,}
stripe:
    [rsp]k_(?:live|test|prod)_[A-Za-z0-9]{10,}
    whsec_[A-Za-z0-9+/=]{24,}
model:
    sk-(?:ant|proj|svcacct|admin|None|or|lf|service)-[A-Za-z0-9_-]{16,}
    sk-[A-Za-z0-9]{5,60}-?T3BlbkFJ[A-Za-z0-9_-]{16,}
    gsk_[A-Za-z0-9]{20,}
    xai-[A-Za-z0-9_-]{40,}
    r8_[A-Za-z0-9]{30,}
    hf_[A-Za-z0-9]{30,}
    api_org_[A-Za-z0-9]{30,}
    pplx-[A-Za-z0-9]{32,}
    csk-[a-z0-9]{40,}
    fw_[A-Za-z0-9]{20,}
    tgp_v1_[A-Za-z0-9_-]{30,}
    nvapi-[A-Za-z0-9_-]{40,}
    jina_[A-Za-z0-9_-]{40,}
    lsv2_(?:pt|sk)_[A-Fa-f0-9]{30,}_[A-Fa-f0-9]{8,}
    tvly-[A-Za-z0-9_-]{20,}
    fc-[a-f0-9]{32}
    esecret_[a-z0-9]{20,}
    pcsk_[A-Za-z0-9_]{40,}
    wandb_v1_[A-Za-z0-9_-]{30,}
    e2b_[a-f0-9]{40}
    dapi[a-f0-9]{32}(?:-[0-9])?
    sk_[a-f0-9]{48}
    (?:pa|al)-[A-Za-z0-9_-]{40,}
    BSA[A-Za-z0-9_-]{22,}
    AQ\.Ab8RN6[A-Za-z0-9_-]{30,}
registry:
    npm_[A-Za-z0-9]{30,}
    pypi-A[A-Za-z0-9_-]{50,}
    rubygems_[a-f0-9]{40,}
    cio[A-Za-z0-9]{32}
    oy2[a-z0-9]{43}
    dckr_(?:pat|oat)_[A-Za-z0-9_-]{20,}
    packagist_[a-z]{2,4}_[a-f0-9]{24,}
    CLOJARS_[a-z0-9]{50,}
    AKC[A-Za-z0-9]{50,}
    cmVmd[A-Za-z0-9]{50,}
shop:
    shp(?:at|ca|pa|ss|tka|ua)_[a-fA-F0-9]{24,}
    sq0[a-z]{3}-[A-Za-z0-9_\\-]{20,}
    EAAA[A-Za-z0-9_-]{22,}
    access_token\$(?:production|sandbox)\$[a-z0-9]{16}\$[a-f0-9]{32}
    access-(?:sandbox|production|development)-[0-9a-f]{8}-[0-9a-f-]{27}
    rzp_(?:live|test)_[A-Za-z0-9]{14,}
    shippo_(?:live|test)_[A-Fa-f0-9]{30,}
    duffel_(?:live|test)_[A-Za-z0-9_=-]{40,}
    FLW(?:PUBK|SECK)(?:_TEST)?-[A-Za-z0-9-]{12,}
    EZ[AT]K[A-Za-z0-9]{50,}
    pdl_(?:live|sdbx)_[A-Za-z0-9_]{20,}
mail:
    SG\.[A-Za-z0-9_=.-]{40,}
    (?:pub)?key-[0-9a-f]{32}
    x(?:keysib|smtpsib)-[A-Fa-f0-9]{40,}-[A-Za-z0-9]{16}
    re_[A-Za-z0-9]{8}_[A-Za-z0-9]{20,}
    mlsn\.[A-Za-z0-9]{24,}
twilio:
    (?:SK|AC)[0-9a-zA-F]{32}
chat:
    discord(?:app)?\.com/api/(?:v[0-9]+/)?webhooks/[0-9]{16,}/[A-Za-z0-9_-]{50,}
    EAA[A-Z][A-Za-z0-9]{80,}
    AAAAAAAAAAAAAAAAAAAAA[A-Za-z0-9%]{60,}
address:
    infura\.io/(?:ws/)?v3/[0-9a-f]{32}
    alchemy(?:api)?\.(?:com|io)/v2/[A-Za-z0-9_-]{28,}
    quiknode\.pro/[0-9a-f]{32,}
    hooks\.zapier\.com/hooks/catch/[0-9]+/[0-9a-z]{5,}
    hook\.[a-z0-9.]{2,12}\.make\.com/[a-z0-9]{24,}
    maker\.ifttt\.com/use/[A-Za-z0-9_-]{16,}
    outlook\.office(?:365)?\.com/webhook/[A-Za-z0-9@/-]{60,}
cloud:
    4b1d[A-Za-z0-9]{38}
    AstraCS:[A-Za-z0-9:]{20,}
    SWM(?:TKN|KEY)-1-[A-Za-z0-9+/-]{40,}
    EXO[A-Za-z0-9]{24,}
    FlyV1\s[A-Za-z0-9+/_=,-]{50,}
    do[opr]_v1_[a-f0-9]{48,}
    dp\.(?:pt|ct|st|sa|scim|audit)\.(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{36,}
    hv[bsr]\.[A-Za-z0-9_-]{20,}
    fm[12][ar]?_[A-Za-z0-9+/_=,-]{60,}
    fo1_[A-Za-z0-9_-]{40,}
    HRKU-[A-Za-z0-9_-]{36,}
    vc[paikr]_[A-Za-z0-9_-]{24,}
    nf[pcobu]_[A-Za-z0-9_-]{30,}
    rnd_[A-Za-z0-9]{24,}
    sbp_[A-Za-z0-9_-]{36,}
    sb_secret_[A-Za-z0-9_-]{20,}
    pscale_(?:tkn|oauth|pw|otkn)_[A-Za-z0-9=._-]{30,}
    napi_[A-Za-z0-9]{50,}
    v1\.0-[a-f0-9]{24}-[a-f0-9]{100,}
    cf(?:k|ut|at)_[A-Za-z0-9]{30,}
    tskey-[a-z]{3,12}-[A-Za-z0-9_-]{16,}
    AVNS_[A-Za-z0-9_-]{16,}
    mdb_sa_(?:sk|id)_[A-Za-z0-9_-]{20,}
    LTAI[A-Za-z0-9]{12,26}
    AKID[A-Za-z0-9]{13,36}
    AKLT[A-Za-z0-9=]{30,}
    AQVN[A-Za-z0-9_-]{34,}
    YC[A-Za-z0-9_-]{38}
    t1\.[A-Z0-9a-z_-]+={0,2}\.[A-Z0-9a-z_-]{80,}={0,2}
    y[0-3]_[A-Za-z0-9_-]{50,}
    sha256~[A-Za-z0-9_-]{40,}
    pul-[a-f0-9]{40}
    p(?:nu|nb)_[a-zA-Z0-9]{36}
    ico-[a-zA-Z0-9]{32}
    tk-us-[A-Za-z0-9_-]{40,}
    AccountKey=[A-Za-z0-9+/]{40,}={0,2}
watch:
    eyJrIjoi[A-Za-z0-9+/=]{30,}
    essu_[A-Za-z0-9+/=_-]{40,}
    sntry[su]_[A-Za-z0-9+/=_-]{40,}
    NR(?:AK|JS|II|RA|IQ|SP|AA)-[A-Za-z0-9_-]{16,}
    glc_[A-Za-z0-9+/]{30,}={0,3}
    glsa_[A-Za-z0-9]{30,}(?:_[A-Fa-f0-9]{8})?
    dt0[a-z][0-9]{2}\.[A-Za-z0-9]{8,24}\.[A-Za-z0-9]{60,}
    PMAK-[A-Fa-f0-9]{24}-[A-Fa-f0-9]{34}
    sq[apu]_[a-f0-9]{40}
    bk(?:ua|pt|aj|ct|ar)_[A-Za-z0-9_-]{32,}
    CCIP(?:AT|RJ)_[A-Za-z0-9_]{20,}
    sgp_(?:local_)?[a-fA-F0-9]{40}
    sgp_[A-Za-z0-9]{16}_[a-fA-F0-9]{40}
    rootly_[a-f0-9]{60,}
    waka_(?:sec_|tok_)?[A-Za-z0-9-]{36,}
work:
    lin_(?:api|oauth)_[A-Za-z0-9]{32,}
    ntn_[A-Za-z0-9]{40,}
    secret_[A-Za-z0-9]{43}
    pat[A-Za-z0-9]{14}\.[a-f0-9]{64}
    AT(?:AT|CTT3)[A-Za-z0-9_=-]{60,}
    ATBB[A-Za-z0-9]{24,}
    BBDC-[A-Za-z0-9+/@_=-]{30,}
    fig[dour]_[A-Za-z0-9_-]{30,}
    sl\.(?:u\.)?[A-Za-z0-9_-]{100,}
    pat-(?:na|eu|ap)[0-9]-[0-9a-f]{8}-[0-9a-f-]{27}
    dG9rOg[A-Za-z0-9+/=_-]{40,}
    CFPAT-[A-Za-z0-9_-]{40,}
    p8e-[a-z0-9]{32}
    tfp_[A-Za-z0-9_.=-]{40,}
    rdme_[a-z0-9]{60,}
    API-[A-Z0-9]{26}
    (?:sec|pub|sub)-c-[A-Za-z0-9-]{30,}
    dnkey-[A-Za-z0-9=_-]{20,}
    sm_(?:aat|pat|sat)_[A-Za-z0-9]{16,}
    fio-u-[A-Za-z0-9_=-]{50,}
    (?:api|sdk|mob)-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}
    ops_eyJ[A-Za-z0-9+/_-]{100,}={0,3}
    A3-[A-Z0-9]{6}-[A-Z0-9]{6,11}-(?:[A-Z0-9]{5}-?){3,4}
    AGE-SECRET-KEY-1[A-Z0-9]{50,}
    xprv[A-Za-z0-9]{90,}
    endr\+[A-Za-z0-9-]{16}
    \$aact_[a-z]{4}_[A-Za-z0-9_:=-]{20,}
    (?:sc|ext|scauth|authress)_[a-z0-9]{5,30}\.[a-z0-9]{4,6}\.acc[_-][A-Za-z0-9._/=+-]{30,}
    gcntfy-[A-Za-z0-9_-]{30,}
    cnvca[A-Za-z0-9_-]{40,}
    sk_car_[A-Za-z0-9_]{16,}
    configcat-sdk-[0-9]/[A-Za-z0-9_/-]{40,}
    incoming\+[A-Za-z0-9._+-]{4,}-(?:issue|merge-request)[A-Za-z0-9-]{0,40}@
    (?:sat|pat)\.[A-Za-z0-9_-]{22}\.[0-9a-f]{24}\.[A-Za-z0-9]{20}
    s-s4t2(?:ud|af)-[a-f0-9]{64}
    Mid-(?:client|server)-[A-Za-z0-9_-]{8,}
    eyJtaXJv[A-Za-z0-9_-]{20,}
    api_(?:live|sandbox)(?:_[a-z]{2})?\.[A-Za-z0-9_.-]{16,}
    lip_[A-Za-z0-9_]{16,}
    wrka[a-z]{2}-ey[A-Za-z0-9_.-]{40,}
    dvc_(?:client|mobile|server)_[A-Za-z0-9_]{8,}
    signkey-[a-z]{2,8}-[A-Za-z0-9]{30,}
    cal_(?:live_)?[a-f0-9]{32}
jwt:
    ey[A-Za-z0-9][A-Za-z0-9_=-]{12,}\.[A-Za-z0-9_/+=-]{12,}(?:\.[A-Za-z0-9_/+=-]*){0,3}
    eyJ[A-Za-z0-9_=-]{2,}\.[A-Za-z0-9_/+=-]{4,}\.[A-Za-z0-9_/+=-]*
    eyJ[A-Za-z0-9_=-]{2,}\.[A-Za-z0-9_/+=-]{16,}
    ZXlK[A-Za-z0-9_/+-]{8,}={0,2}
loose:
    s\.[a-z0-9]{24}
    [sS][kK]-[A-Za-z0-9_-]{20,}
    AKC[A-Za-z0-9]{10,}
    AP[0-9A-F][A-Za-z0-9]{8,}
    PMAT-[A-Za-z0-9]{20,}
    CAIS[A-Za-z0-9+/_=-]{30,}
    ey[A-Za-z0-9_=-]{6,}\.[A-Za-z0-9_=-]{4,}
"""
"""Those of `loose` have short beginnings: they count only where the rest was drawn by chance."""
FORMATS = {
    kind: shapes.split()
    for kind, shapes in re.findall(r"^([a-z]+):\n((?:    .*\n)+)", _SHAPES, re.MULTILINE)
}


MARKED: dict[str, tuple[str, str]] = {
    r"\.atlasv1\.": ("cloud", r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{50,}"),
    r"[0-9]Q~": ("cloud", r"[A-Za-z0-9_~.-]{3}[0-9]Q~[A-Za-z0-9_~.-]{30,}"),
    r"-us[0-9]": ("mail", r"[0-9a-z]{32}-us[0-9]{1,2}"),
    r"softlayer": ("cloud", r"softlayer.com/(?:soap|xmlrpc)/v3(?:.1)?/[a-z0-9]{64}"),
    r"\.webhook\.office\.com/": (
        "chat",
        r"[a-z0-9.-]{1,100}\.webhook\.office\.com/webhookb2/[A-Za-z0-9@/-]{60,}",
    ),
    r"\b00[A-Za-z0-9]{13}(?:[A-Za-z0-9]{3})?!": (
        "crm",
        r"\b00[A-Za-z0-9]{13,16}![A-Za-z0-9_.-]{60,}",
    ),
    r"_mmk": ("work", r"[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk"),
    r"JQQJ99": ("cloud", r"[A-Za-z0-9+/]{40,}JQQJ99[A-Za-z0-9+/]{5,}={0,2}"),
    r"AzSe": ("cloud", r"[A-Za-z0-9+/]{30,}AzSe[A-Za-z0-9+/]{5,}={0,2}"),
    r"\+ASt": ("cloud", r"[A-Za-z0-9+/]{60,}\+ASt[A-Za-z0-9+/]{5,}={0,2}"),
    r"AzCa": ("cloud", r"[A-Za-z0-9+/]{30,}AzCa[A-Za-z0-9+/]{5,}={0,2}"),
    r"ACDb": ("cloud", r"[A-Za-z0-9+/]{60,}ACDb[A-Za-z0-9+/]{5,}={0,2}"),
    r"\+AMC": ("cloud", r"[A-Za-z0-9+/]{60,}\+AMC[A-Za-z0-9+/]{5,}={0,2}"),
}

AFTER_RUN: dict[str, str] = {
    "chat": r"[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}",
    "model": r"[0-9a-fA-F]{32}\.[A-Za-z0-9]{16,}",
}
"""Those with no mark but how long their parts are: the run, and what follows it."""
SHAPED_RUN = re.compile(rb"[0-9a-f]{32}-[0-9a-f]{8}-[0-9a-f]{8}")
"""Those that are a run by themselves."""
BEFORE_RUN: dict[str, str] = {
    "chat": r"[0-9]{7,13}:[A-Za-z0-9_-]{32,}|[0-9]{5,16}:A[A-Za-z0-9_-]{32,}",
    "work": r"[12]/[0-9]{10,16}(?:/[0-9]{10,16})?:[a-f0-9]{32}",
    "report": r"[A-Za-z0-9+/]{22}==:[A-Za-z0-9]{32}",
    "shop": r"[0-9]{15,16}(?:\||%)[A-Za-z0-9_-]{27,40}",
}
"""And those where the run comes last."""
